use super::message::{Attributes, Part, attributes, parts};
use super::*;
use proptest::prelude::*;
use ropewalk_io::packet::cable::{CARD, Cable};

/// An answer as the kernel would send it.
fn answer(parts: &[(u16, &[u8])]) -> Vec<u8> {
    let message = parts.iter().fold(Message::new(0, &[]), |message, (kind, value)| message.with(*kind, value));
    message.bytes(1)[16..].to_vec()
}

#[test]
fn rings_channels_and_coalescing_are_read() {
    let word = |number: u32| number.to_ne_bytes();
    let mut report = CardReport::default();
    Command::Rings.read(&answer(&[(2, &word(8192)), (5, &word(4096)), (6, &word(1024)), (9, &word(512))]), &mut report);
    Command::Channels.read(&answer(&[(2, &word(0)), (5, &word(64)), (6, &word(0)), (9, &word(63))]), &mut report);
    Command::Coalesce.read(&answer(&[(2, &word(8)), (11, &[1])]), &mut report);
    Command::Pause.read(&answer(&[(2, &[0]), (3, &[1]), (4, &[0])]), &mut report);
    Command::Spread.read(&answer(&[(4, &[word(0), word(1), word(0)].concat())]), &mut report);
    ethtool::read_xdp(&answer(&[(3, &0b1011_u64.to_ne_bytes())]), &mut report);
    let values: Vec<_> = report.properties.iter().map(|(property, value)| format!("{property} {value}")).collect();
    let expected = "receive ring 1024, transmit ring 512, combined channels 63, adaptive coalescing on, coalescing time 8, \
                    negotiated pause frames off, heeded pause frames on, sent pause frames off";
    assert_eq!(values.join(", "), expected);
    assert_eq!((report.most_receive_ring, report.most_transmit_ring), (Some(8192), Some(4096)));
    assert_eq!((report.most_combined_channels, report.spread), (Some(64), vec![0, 1, 0]));
    assert_eq!(report.xdp, ["basic", "redirect", "xsk-zerocopy"]);
}

#[test]
fn links_that_a_card_can_have_are_read() {
    let bits = [("Autoneg", true), ("100000baseSR4/Full", false), ("FIBRE", true), ("25000baseSR/Full", true)];
    let bits = bits.iter().fold(Attributes::default(), |bits, (name, is_set)| {
        let bit = Attributes::default().with(2, &message::ended(name));
        bits.with_nested(1, &if *is_set { bit.with(3, &[]) } else { bit })
    });
    let answer = |bits: &Attributes| {
        let set = Attributes::default().with_nested(3, bits);
        Message::new(0, &[]).with_nested(3, &set).bytes(1)[16..].to_vec()
    };
    let mut report = CardReport::default();
    Command::LinkModes.read(&answer(&bits), &mut report);
    assert_eq!((report.most_megabits, report.offered_megabits), (Some(100_000), Some(25_000)));
    Command::LinkModes.read(&answer(&Attributes::default()), &mut report);
    assert_eq!((report.most_megabits, report.offered_megabits), (None, None), "a driver that does not tell");
}

#[test]
fn features_are_told_apart_from_those_that_nobody_can_change() {
    let set = |names: &[(&str, bool)], is_masked: bool| {
        let bits = names.iter().fold(Attributes::default(), |bits, (name, is_set)| {
            let bit = Attributes::default().with(2, &message::ended(name));
            bits.with_nested(1, &if *is_set && is_masked { bit.with(3, &[]) } else { bit })
        });
        let set = if is_masked { Attributes::default() } else { Attributes::default().with(1, &[]) };
        set.with_nested(3, &bits)
    };
    let request = Message::new(0, &[])
        .with_nested(2, &set(&[("rx-gro", true), ("tx-lockless", true), ("rx-lro", false), ("rx-hashing", true)], true))
        .with_nested(4, &set(&[("rx-gro", true), ("tx-lockless", true)], false))
        .with_nested(5, &set(&[("tx-lockless", true), ("rx-gro", false)], true));
    let mut report = CardReport::default();
    Command::Features.read(&request.bytes(1)[16..], &mut report);
    assert_eq!(report.value(&Property::Feature("rx-gro".to_owned())), Some("on"));
    assert_eq!(report.value(&Property::Feature("rx-hashing".to_owned())), Some("off"));
    let fixed: Vec<_> = report.fixed_features.iter().map(|(name, is_on)| (name.as_str(), *is_on)).collect();
    assert_eq!(fixed, [("rx-lro", false), ("tx-lockless", true)]);
}

#[test]
fn an_interface_that_is_not_there_is_unknown() {
    for name in ["none-such0", "", "a-name-that-is-far-too-long", "eth0/..", "eth\0"] {
        let message = format!("there is no network interface `{name}`");
        assert_eq!(Netlink::default().report(name).expect_err(name).to_string(), message);
        assert_eq!(Netlink::default().mtu(name).expect_err(name).to_string(), message);
        assert_eq!(Netlink::default().set_mtu(name, 9000).expect_err(name).to_string(), message);
        let set = Netlink::default().set(name, &Property::ReceiveRing, "64");
        assert_eq!(set.expect_err(name).to_string(), message);
        let value = Netlink::default().value(name, &Property::ReceiveRing);
        assert_eq!(value.expect_err(name).to_string(), message);
    }
}

#[test]
fn the_loop_is_there_and_has_features() {
    let report = Netlink::default().report("lo").expect("every machine has it");
    assert_eq!(report.fixed_features.get("loopback"), Some(&true), "{report:?}");
    assert!(report.properties.iter().any(|(property, _)| matches!(property, Property::Feature(_))), "{report:?}");
    assert_eq!((report.value(&Property::ReceiveRing), report.most_mtu), (None, None), "it has no bound");
    let value = |property: &Property| Netlink::default().value("lo", property).expect("it answers");
    assert!(report.properties.iter().all(|(property, told)| value(property).as_ref() == Some(told)), "{report:?}");
    assert_eq!(value(&Property::ReceiveRing), None, "the driver does not have it");
    assert!(Netlink::default().mtu("lo").expect("every machine has it") > 0);
}

/// A card of two virtual ones that are connected, with four queues, in a network namespace of its own.
fn on_a_cable(test: &str, what: impl FnOnce(&mut Netlink) + Send) {
    match Cable::lay(1500, 4) {
        Ok(cable) => cable.source.inside(|| what(&mut Netlink::default())),
        Err(_) => ropewalk_tidy::skipped(test, "may not make network namespaces"),
    }
}

#[test]
fn what_is_set_is_read_again() {
    on_a_cable("cards::netlink::tests::what_is_set_is_read_again", |cards| {
        let before = cards.report(CARD).expect("it is there");
        let feature = |name: &str| Property::Feature(name.to_owned());
        let changes = [
            (feature("tx-tcp-segmentation"), "off"),
            (feature("rx-gro"), "on"),
            (Property::ReceiveChannels, "2"),
            (Property::TransmitChannels, "3"),
        ];
        for (property, value) in &changes {
            assert_ne!(before.value(property), Some(*value), "{property}: {before:?}");
            cards.set(CARD, property, value).expect("it can be set");
            assert_eq!(cards.report(CARD).expect("it is there").value(property), Some(*value), "{property}");
        }
        cards.set_mtu(CARD, 9000).expect("it can be set");
        assert_eq!(cards.mtu(CARD).expect("it is there"), 9000);
        assert_eq!(before.most_mtu, Some(65535), "veth.c, ETH_MAX_MTU");
        assert!(before.xdp.contains(&"basic".to_owned()), "{before:?}");
    });
}

#[test]
fn what_a_driver_refuses_is_told() {
    on_a_cable("cards::netlink::tests::what_a_driver_refuses_is_told", |cards| {
        let mut said =
            |property: Property, value: &str| cards.set(CARD, &property, value).expect_err("it is refused").to_string();
        assert_eq!(said(Property::ReceiveRing, "64"), "veth0: the driver cannot set the receive ring");
        assert_eq!(said(Property::ReceiveChannels, "99"), "veth0: `99` is no value of the receive channels");
        assert_eq!(said(Property::ReceiveChannels, "many"), "veth0: `many` is no value of the receive channels");
        let none = Property::Feature("no-such-feature".to_owned());
        assert_eq!(said(none, "on"), "veth0: the driver cannot set the no-such-feature");
        assert_eq!(
            cards.set_mtu(CARD, 7).expect_err("it is refused").to_string(),
            "veth0: `7` is no MTU that it can have: write a number of bytes"
        );
    });
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Every view over bytes from outside returns; what is cut off is left out.
    #[test]
    fn no_bytes_make_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), small in prop::collection::vec(0..12_u8, 0..300)) {
        for bytes in [&bytes, &small] {
            for part in parts(bytes, 0) {
                if let Part::Body(body) = part {
                    prop_assert!(body.len() <= bytes.len());
                }
            }
            prop_assert!(attributes(bytes).map(|(_, value)| value.len() + 4).sum::<usize>() <= bytes.len());
            let mut report = CardReport::default();
            Command::ALL.into_iter().for_each(|command| command.read(bytes, &mut report));
            ethtool::read_xdp(bytes, &mut report);
        }
    }

    #[test]
    fn what_is_made_is_read(kinds in prop::collection::vec((0..99_u16, prop::collection::vec(any::<u8>(), 0..40)), 0..9), sequence: u32) {
        let message = kinds.iter().fold(Message::new(77, &[]), |message, (kind, value)| message.with(*kind, value));
        let bytes = [message.bytes(sequence), message.bytes(sequence.wrapping_add(1)), message.bytes(sequence)].concat();
        let read = parts(&bytes, sequence);
        prop_assert_eq!(read.len(), 2);
        let Part::Body(body) = read[1] else { panic!("no error was written") };
        let attributes: Vec<_> = attributes(body).map(|(kind, value)| (kind, value.to_vec())).collect();
        prop_assert_eq!(attributes, kinds);
    }
}
