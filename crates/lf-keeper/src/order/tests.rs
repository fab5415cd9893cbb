use std::os::unix::ffi::OsStringExt as _;

use super::*;

fn order() -> Order {
    Order {
        parent: 7,
        word: "w".to_owned(),
        program: "/usr/bin/env".into(),
        name: "env".into(),
        args: vec![OsString::from_vec(vec![b'a', 0xff])],
        environment: vec![("A".into(), "b\nc".into())],
        directory: "/".into(),
        namespaces: true,
        missing: vec![Missing::OwnProc],
        confinement: Some(Confinement {
            read: vec!["/a".into()],
            write: Vec::new(),
            network: Network::Ports(vec![443]),
        }),
        require: true,
    }
}

#[test]
fn an_order_is_read_twice_and_nothing_of_what_follows() {
    let bytes = [order().to_bytes().unwrap(), b"rest".to_vec()].concat();
    let mut from = bytes.as_slice();
    for _ in 0..2 {
        let read = Order::read(&mut from).unwrap();
        assert_eq!(read.args, order().args);
        assert_eq!(read.environment, order().environment);
        assert_eq!(read.confinement, order().confinement);
    }
    assert_eq!(from, b"rest");
}

#[test]
fn what_may_be_secret_is_not_shown() {
    let shown = format!("{:?}", order());
    assert_eq!(shown, r#"Order { program: "/usr/bin/env", .. }"#);
}

#[test]
fn what_is_cut_off_or_too_long_is_no_order() {
    let bytes = order().to_bytes().unwrap();
    for end in [0, 3, 4, 20] {
        assert!(Order::read(&mut &bytes[..end]).is_err(), "{end}");
    }
    let error = Order::read(&mut [0xff; 8].as_slice()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    let long = Order { args: vec![OsString::from_vec(vec![b'a'; 6 << 20])], ..order() };
    let error = long.to_bytes().err().map(|error| error.kind());
    assert_eq!(error, Some(io::ErrorKind::ArgumentListTooLong));
}

#[test]
fn the_longest_report_fits_its_line() {
    let missing = vec![
        Missing::ProcessNamespace,
        Missing::OwnProc,
        Missing::NetworkNamespace,
        Missing::IpcNamespace,
        Missing::ReadOnlyMounts,
        Missing::Landlock,
        Missing::Seccomp,
    ];
    for report in [
        Report::Started { missing: missing.clone() },
        Report::Refused { missing },
        Report::Again,
        Report::failed(Doing::Starting, &io::Error::from_raw_os_error(libc::ENOENT)),
    ] {
        let mut line = Vec::new();
        let word = "0123456789abcdef0123456789abcdef";
        report.write(word, &mut line).unwrap();
        assert!(line.len() as u64 <= Report::LONGEST);
        assert_eq!(Report::parse(&line, word).unwrap(), report);
        assert!(Report::parse(&line, "fedcba").is_err(), "who does not know the word is not believed");
    }
}
