//! A scanner that tells Rust code from its comments and literals, so that rules do not trip over text.

use std::ops::Range;

/// A file, taken apart. Both texts are as long as the file, line by line and byte by byte.
pub struct Source {
    /// The code: comments, strings, characters and anything outside ASCII are blanks.
    pub code: String,
    /// The comments: everything else is blank.
    pub comments: String,
}

impl Source {
    /// Takes `text` apart.
    pub fn new(text: &str) -> Self {
        let bytes = text.as_bytes();
        let mut code = bytes.to_vec();
        let mut comments = vec![b' '; bytes.len()];
        let mut at = 0;
        while at < bytes.len() {
            let (end, kind) = piece(bytes, at);
            if kind == Kind::Comment {
                comments[at..end].copy_from_slice(&bytes[at..end]);
            }
            if kind != Kind::Code {
                code[at..end].fill(b' ');
            }
            at = end;
        }
        for index in 0..bytes.len() {
            if bytes[index] == b'\n' {
                (code[index], comments[index]) = (b'\n', b'\n');
            } else if !bytes[index].is_ascii() {
                code[index] = b' ';
            }
        }
        let code = String::from_utf8(code).expect("everything outside ASCII was blanked");
        Self { code, comments: String::from_utf8_lossy(&comments).into_owned() }
    }
}

/// What a piece of a file is.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
enum Kind {
    Code,
    Comment,
    Literal,
}

/// The end and the kind of the piece that starts at `at`.
fn piece(bytes: &[u8], at: usize) -> (usize, Kind) {
    let rest = &bytes[at..];
    match rest[0] {
        b'/' if rest.starts_with(b"//") => (at + line_length(rest), Kind::Comment),
        b'/' if rest.starts_with(b"/*") => (at + block_comment_length(rest), Kind::Comment),
        b'"' => (at + quoted_length(rest, b'"'), Kind::Literal),
        b'\'' => match character_length(rest) {
            Some(length) => (at + length, Kind::Literal),
            None => (at + 1, Kind::Code),
        },
        first if is_word(first) => {
            let length = rest.iter().take_while(|&&byte| is_word(byte)).count();
            match prefixed_length(&rest[..length], &rest[length..]) {
                Some(literal) => (at + length + literal, Kind::Literal),
                None => (at + length, Kind::Code),
            }
        }
        _ => (at + 1, Kind::Code),
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn line_length(rest: &[u8]) -> usize {
    rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len())
}

/// The length of a block comment, which may hold others.
fn block_comment_length(rest: &[u8]) -> usize {
    let (mut at, mut depth) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with(b"/*") {
            (at, depth) = (at + 2, depth + 1);
        } else if rest[at..].starts_with(b"*/") {
            (at, depth) = (at + 2, depth - 1);
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// The length of a literal with escapes, both quotes included.
fn quoted_length(rest: &[u8], quote: u8) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            b'\\' => at += 2,
            byte if byte == quote => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// The length of a character literal; `None` if the quote starts a lifetime.
fn character_length(rest: &[u8]) -> Option<usize> {
    let first = *rest.get(1)?;
    if first == b'\\' {
        return Some(quoted_length(rest, b'\''));
    }
    let width = match first {
        0..=0x7F => 1,
        0x80..=0xDF => 2,
        0xE0..=0xEF => 3,
        _ => 4,
    };
    (rest.get(1 + width) == Some(&b'\'')).then_some(width + 2)
}

/// The length of the literal behind the word `prefix`; `None` if `prefix` is an ordinary word.
fn prefixed_length(prefix: &[u8], rest: &[u8]) -> Option<usize> {
    match (prefix, rest.first()?) {
        (b"r" | b"br" | b"cr", b'"' | b'#') => raw_length(rest),
        (b"b" | b"c", b'"') => Some(quoted_length(rest, b'"')),
        (b"b", b'\'') => Some(quoted_length(rest, b'\'')),
        _ => None,
    }
}

/// The length of a raw string from its first `#` or quote; `None` for a raw identifier.
fn raw_length(rest: &[u8]) -> Option<usize> {
    let hashes = rest.iter().take_while(|&&byte| byte == b'#').count();
    if rest.get(hashes) != Some(&b'"') {
        return None;
    }
    let closing: Vec<u8> = [b"\"".as_slice(), &vec![b'#'; hashes]].concat();
    let body = &rest[hashes + 1..];
    let length = body.windows(closing.len()).position(|window| window == closing)?;
    Some(hashes + 1 + length + closing.len())
}

/// The words of masked code with their places, in order.
pub fn words(code: &str) -> impl Iterator<Item = (Range<usize>, &str)> {
    let bytes = code.as_bytes();
    let mut at = 0;
    std::iter::from_fn(move || {
        at += bytes[at..].iter().position(|&byte| is_word(byte))?;
        let start = at;
        at += bytes[at..].iter().take_while(|&&byte| is_word(byte)).count();
        Some((start..at, &code[start..at]))
    })
}

/// The line of a place in `text`, counted from one.
pub fn line_of(text: &str, place: usize) -> usize {
    1 + text.as_bytes()[..place].iter().filter(|&&byte| byte == b'\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_leave_the_code() {
        let text = r##"let a = "fn // no"; // fn one
/* fn /* nested */ still */ let b = 'x'; let c: &'a str = r#"} " fn"#; let d = b'\'';
let r#fn = '\u{1F600}'; let e = 'ü'; fn two() {}"##;
        let source = Source::new(text);
        assert_eq!(source.code.len(), text.len());
        assert_eq!(source.code.lines().count(), 3);
        let lines: Vec<String> =
            source.code.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(lines[0], "let a = ;");
        assert_eq!(lines[1], "let b = ; let c: &'a str = ; let d = ;");
        assert_eq!(lines[2], "let r#fn = ; let e = ; fn two() {}");
        assert!(source.comments.contains("// fn one") && source.comments.contains("still */"));
        assert!(!source.comments.contains("// no"));
    }

    #[test]
    fn unfinished_literals_end_with_the_file() {
        for text in ["\"abc", "/* a /* b */", "'\\", "b'\\'", "let x = \"\\"] {
            assert_eq!(Source::new(text).code.len(), text.len());
        }
    }

    #[test]
    fn words_and_lines_are_counted() {
        let code = "pub fn a\n  unsafe_code";
        let found: Vec<&str> = words(code).map(|(_, word)| word).collect();
        assert_eq!(found, ["pub", "fn", "a", "unsafe_code"]);
        assert_eq!(line_of(code, 12), 2);
    }
}
