//! What card and kernel do with many packets at once, in the place of one by one: ethtool(8) `-K`.

use super::*;

/// Rules on offloads.
pub(in crate::rules) const OFFLOADS: &[Rule] = &[
    Rule {
        name: "receive_offload",
        group: Group::Card,
        what: "Packets of one connection that are put together before the kernel works on them. In the kernel (`rx-gro`): \
               on. By the card's driver in the old way (`rx-lro`): off.",
        why: "The kernel's work is counted in packets, not in bytes: put together, 64 KiB cost as much as one frame. \
              The old way throws away what cannot be told apart afterwards, and is left off where packets pass on.",
        source: "paper 1, IV-D, on what fewer packets save; the kernel's networking/segmentation-offloads.rst",
        worth: "a receiver that empties a full queue: 1.2 to 1.5 million datagrams of 1024 bytes a second one by one, \
               16 million \
                put together by the kernel; `ropewalk bench packet`",
        sureness: Sureness::Measured,
        look: receive_offload,
    },
    Rule {
        name: "send_offload",
        group: Group::Card,
        what: "Large pieces that the card, or at the last moment the kernel, cuts into packets: `tx-scatter-gather`, \
               `tx-tcp-segmentation`, `tx-generic-segmentation`. On.",
        why: "As with `receive_offload`, the other way: the kernel works on 64 KiB in the place of 45 packets. Without \
              gathering each piece is copied once more.",
        source: "the kernel's networking/segmentation-offloads.rst",
        worth: "0.43 million packets a second without, 1.44 with segmentation in software alone (datagrams over a \
               virtual \
                pair); `ropewalk bench packet`",
        sureness: Sureness::Measured,
        look: send_offload,
    },
    Rule {
        name: "checksum_offload",
        group: Group::Card,
        what: "Whether the card computes and checks the checksums of packets (`rx-checksum`, `tx-checksum-*`). On.",
        why: "Otherwise a core reads each byte once more; and the kernel does not put packets together or cut them \
              late whose checksums it has to look at itself.",
        source: "the kernel's networking/checksum-offloads.rst",
        worth: "one pass over all data: at 23 GB/s each GB takes 0.04 s of a core; `ropewalk doctor` shows how fast \
               memory is read",
        sureness: Sureness::Documented,
        look: checksum_offload,
    },
];

fn receive_offload(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    Ok(features(found, wish, &[("rx-gro", "on", Grade::Harmful), ("rx-lro", "off", Grade::CouldBeBetter)]))
}

fn send_offload(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    let wanted = ["tx-scatter-gather", "tx-tcp-segmentation", "tx-generic-segmentation"];
    Ok(features(found, wish, &wanted.map(|name| (name, "on", Grade::Harmful))))
}

fn checksum_offload(found: &Found, wish: &Wish) -> Result<Vec<Seen>, Unread> {
    let wanted = ["rx-checksum", "tx-checksum-ip-generic", "tx-checksum-ipv4", "tx-checksum-ipv6"];
    Ok(features(found, wish, &wanted.map(|name| (name, "on", Grade::CouldBeBetter))))
}

/// Features that should be on or off, as far as cards have them. What nobody can change is left out.
fn features(found: &Found, wish: &Wish, wanted: &[(&str, &str, Grade)]) -> Vec<Seen> {
    let mut seen = Vec::new();
    for (card, report) in found.reports(wish) {
        for &(name, advised, grade) in wanted {
            let property = Property::Feature(name.to_owned());
            seen.extend(report.value(&property).map(|present| {
                if present == advised {
                    Seen::good(subject(card, &property), present)
                } else {
                    wrong(grade, card, &property, present, advised)
                }
            }));
        }
    }
    seen
}
