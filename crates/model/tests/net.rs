//! Addresses, prefixes, ports and protocols as text.

use std::fmt::Debug;
use std::str::FromStr;

use model::{IpPrefix, MacAddr, NetError, PortRange, Protocol};
use proptest::prelude::*;

fn rows<T: FromStr<Err = NetError> + ToString + Debug>(rows: &[(&str, Result<&str, &str>)]) {
    for (text, expected) in rows {
        let got = text.parse::<T>().map(|v| v.to_string()).map_err(|e| e.to_string());
        assert_eq!(got, expected.map(str::to_string).map_err(str::to_string), "{text:?}");
    }
}

#[test]
fn prefixes() {
    rows::<IpPrefix>(&[
        ("10.0.0.1", Ok("10.0.0.1")),
        ("10.0.0.1/32", Ok("10.0.0.1")),
        ("0.0.0.0/0", Ok("0.0.0.0/0")),
        ("::/0", Ok("::/0")),
        ("FD00:0::1/128", Ok("fd00::1")),
        ("fd00::/64", Ok("fd00::/64")),
        ("", Err("\"\" is no IP address")),
        ("10.0.0", Err("\"10.0.0\" is no IP address")),
        ("fe80::1%eth0", Err("\"fe80::1%eth0\" is no IP address")),
        ("10.0.0.0/", Err("prefix length \"\" is not from 0 to 32")),
        ("10.0.0.0/+8", Err("prefix length \"+8\" is not from 0 to 32")),
        ("::/129", Err("prefix length \"129\" is not from 0 to 128")),
        ("10.0.0.1/8", Err("10.0.0.1/8 has bits set beyond its length, the prefix is 10.0.0.0/8")),
        ("::ffff:10.0.0.1", Err("::ffff:10.0.0.1 is the IPv6 form of an IPv4 address")),
    ]);
    let wide: IpPrefix = "10.0.0.0/8".parse().expect("valid");
    let narrow: IpPrefix = "10.1.0.0/16".parse().expect("valid");
    let other: IpPrefix = "::/0".parse().expect("valid");
    assert!(wide.covers(&narrow) && !narrow.covers(&wide) && wide.covers(&wide));
    assert!(wide.overlaps(&narrow) && narrow.overlaps(&wide) && !other.overlaps(&wide));
    let addr = |text: &str| text.parse().expect("valid");
    assert!(wide.contains(addr("10.255.255.255")) && !wide.contains(addr("11.0.0.0")));
    assert!(!other.contains(addr("10.0.0.1")) && other.contains(addr("ff02::1")));
    assert!(IpPrefix::from(addr("::ffff:10.0.0.1")) == "10.0.0.1".parse().expect("valid"));
}

#[test]
fn mac_addresses() {
    rows::<MacAddr>(&[
        ("02:00:00:00:01:aF", Ok("02:00:00:00:01:af")),
        ("02-00-00-00-01-af", Ok("02:00:00:00:01:af")),
        ("02:00:00:00:01", Err("\"02:00:00:00:01\" is no MAC address")),
        ("02:00:00:00:01:02:03", Err("\"02:00:00:00:01:02:03\" is no MAC address")),
        ("2:0:0:0:1:2", Err("\"2:0:0:0:1:2\" is no MAC address")),
        ("+2:00:00:00:01:02", Err("\"+2:00:00:00:01:02\" is no MAC address")),
        ("02:00-00:00:01:02", Err("\"02:00-00:00:01:02\" is no MAC address")),
    ]);
}

#[test]
fn port_ranges() {
    rows::<PortRange>(&[
        ("53", Ok("53")),
        ("0-65535", Ok("0-65535")),
        ("7-7", Ok("7")),
        ("2-1", Err("port range 2-1 is reversed")),
        ("65536", Err("\"65536\" is no port and no port range")),
        ("1-2-3", Err("\"1-2-3\" is no port and no port range")),
        (" 1", Err("\" 1\" is no port and no port range")),
        ("", Err("\"\" is no port and no port range")),
    ]);
}

#[test]
fn protocols() {
    rows::<Protocol>(&[
        ("tcp", Ok("tcp")),
        ("6", Ok("tcp")),
        ("132", Ok("132")),
        ("58", Ok("icmpv6")),
        ("TCP", Err("\"TCP\" is no protocol")),
        ("256", Err("\"256\" is no protocol")),
    ]);
}

proptest! {
    #[test]
    fn any_text_is_refused_or_comes_back(text in "[0-9a-f:./-]{0,24}|.{0,12}") {
        fn check<T: FromStr + ToString + PartialEq + Debug>(text: &str) -> bool {
            text.parse::<T>().is_ok_and(|v| v.to_string().parse::<T>().ok() != Some(v))
        }
        prop_assert!(!check::<IpPrefix>(&text) && !check::<MacAddr>(&text));
        prop_assert!(!check::<PortRange>(&text) && !check::<Protocol>(&text));
    }
}
