use std::io;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use lf_core::operator::Listed;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;

use super::*;

/// A listener that counts who comes, and answers with this.
async fn sink(answer: String) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let visits = Arc::new(AtomicUsize::new(0));
    let counted = visits.clone();
    TaskTracker::new().spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            let answer = answer.clone();
            TaskTracker::new().spawn(async move {
                let _ = stream.read(&mut [0; 4096]).await;
                let _ = stream.write_all(answer.as_bytes()).await;
            });
        }
    });
    (port, visits)
}

const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

fn clients(resolver: Resolver, egress: Vec<Listed>) -> Clients {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let operator = Operator { egress, ..Operator::default() };
    let egress = Egress { resolver, ..Egress::new(Arc::new(operator), Vec::new()) };
    let shaped = |builder: ClientBuilder| {
        builder
            .redirect(same_origin())
            .connect_timeout(Duration::from_secs(2))
            .timeout(Duration::from_secs(5))
    };
    Clients::new(egress, shaped).unwrap()
}

/// Looks names up in this list, one entry for each look; the last one holds.
fn resolver(answers: &[&str]) -> Resolver {
    let answers: Vec<SocketAddr> =
        answers.iter().map(|answer| SocketAddr::new(answer.parse().unwrap(), 0)).collect();
    let looks = AtomicUsize::new(0);
    Resolver::new(Arc::new(move |_| {
        let look = looks.fetch_add(1, Ordering::SeqCst).min(answers.len() - 1);
        let found = vec![answers[look]];
        async move { Ok::<_, io::Error>(found) }.boxed()
    }))
}

async fn ask(clients: &Clients, url: &str, reach: Reach) -> Result<StatusCode, String> {
    let client = clients.to(url, reach).map_err(|error| error.to_string())?;
    let answer = client.post(url).body("{}").send().await;
    answer
        .map(|answer| answer.status())
        .map_err(|error| Refused::within(&error).map_or_else(|| error.to_string(), ToString::to_string))
}

/// Ways to write an IPv4 address: one to four parts, in three bases, with leading zeros and dots behind, mapped into IPv6.
fn written([a, b, c, d]: [u8; 4]) -> Vec<String> {
    let word = u32::from_be_bytes([a, b, c, d]);
    let (low16, low24) = (word & 0xffff, word & 0xff_ffff);
    let shapes: [Vec<u32>; 4] = [
        vec![a.into(), b.into(), c.into(), d.into()],
        vec![a.into(), b.into(), low16],
        vec![a.into(), low24],
        vec![word],
    ];
    let bases: [fn(u32) -> String; 6] = [
        |part| part.to_string(),
        |part| format!("0x{part:x}"),
        |part| format!("0X{part:08X}"),
        |part| format!("0{part:o}"),
        |part| format!("0000{part:o}"),
        |part| {
            part.to_string()
                .chars()
                .map(|digit| char::from_u32(0xff10 + digit as u32 - 48).unwrap())
                .collect()
        },
    ];
    let mut forms = Vec::new();
    for shape in &shapes {
        for (first, base) in bases.iter().enumerate() {
            let alike: Vec<String> = shape.iter().map(|part| base(*part)).collect();
            let other = bases[(first + 1) % bases.len()];
            let mixed: Vec<String> = shape
                .iter()
                .enumerate()
                .map(|(at, part)| if at % 2 == 0 { base(*part) } else { other(*part) })
                .collect();
            for parts in [alike, mixed] {
                for dot in [".", "\u{3002}", "%2e"] {
                    let host = parts.join(dot);
                    forms.extend([host.clone(), format!("{host}.")]);
                }
            }
        }
    }
    let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
    for prefix in ["::ffff:", "0:0:0:0:0:ffff:", "::FFFF:", "64:ff9b::", "0::ffff:"] {
        forms.extend([format!("[{prefix}{a}.{b}.{c}.{d}]"), format!("[{prefix}{high:x}:{low:x}]")]);
    }
    forms.sort();
    forms.dedup();
    forms
}

#[tokio::test]
async fn a_thousand_ways_to_write_a_forbidden_place_lead_to_no_connection() {
    let (port, visits) = sink(OK.to_owned()).await;
    let system = clients(Resolver::system(), Vec::new());
    let mut forms = [[127, 0, 0, 1], [0, 0, 0, 0], [127, 1, 2, 3]].map(written).concat();
    let names = [
        "localhost",
        "LOCALHOST",
        "localhost.",
        "a.localhost",
        "localhost..",
        "[::1]",
        "[::]",
        "[0:0:0:0:0:0:0:1]",
    ];
    forms.extend(names.map(str::to_owned));
    let around = [
        "http://HOST:PORT/mcp",
        "http://user:pass@HOST:PORT/",
        "http://example.com@HOST:PORT/#x",
        "http:\\\\HOST:PORT\\v1",
    ];
    let mut asked = 0;
    let mut readable = Vec::new();
    for host in &forms {
        for shape in around {
            let url = shape.replace("HOST", host).replace("PORT", &port.to_string());
            asked += 1;
            assert!(ask(&system, &url, Reach::Public).await.is_err(), "{url}");
            readable.push(url);
        }
    }
    // where a listener is not: whatever it is that answers there
    for host in [[169, 254, 169, 254], [100, 100, 100, 200], [168, 63, 129, 16]].map(written).concat() {
        for reach in [Reach::Public, Reach::Named] {
            asked += 1;
            assert!(ask(&system, &format!("http://{host}:{port}/"), reach).await.is_err(), "{host}");
        }
    }
    assert!(asked >= 1000, "{asked}");
    assert_eq!(visits.load(Ordering::SeqCst), 0, "of {asked}");
    // the control: who may, gets there with the same URLs
    for url in readable.iter().filter(|url| url.contains("127") || url.contains("0x7f")).take(200) {
        let _ = ask(&system, url, Reach::Named).await;
    }
    assert!(visits.load(Ordering::SeqCst) >= 50, "{}", visits.load(Ordering::SeqCst));
}

#[tokio::test]
async fn the_address_counts_when_it_is_dialled_and_not_the_name() {
    let (port, visits) = sink(OK.to_owned()).await;
    let url = format!("http://public.example:{port}/");
    for answers in [&["127.0.0.1"][..], &["10.0.0.1"], &["::ffff:127.0.0.1"], &["fd00::1"], &["0.0.0.0"]] {
        let refused = ask(&clients(resolver(answers), Vec::new()), &url, Reach::Public).await.unwrap_err();
        assert!(refused.contains("is not connected to: its address is"), "{refused}");
    }
    for metadata in ["169.254.169.254", "fe80::1", "fd00:ec2::254", "::ffff:169.254.169.254"] {
        for reach in [Reach::Public, Reach::Named] {
            let refused = ask(&clients(resolver(&[metadata]), Vec::new()), &url, reach).await.unwrap_err();
            assert!(refused.contains("link-local"), "{metadata}: {refused}");
        }
    }
    // a first answer that was looked at does not stand for the second
    let changing = clients(resolver(&["192.88.99.1", "127.0.0.1"]), Vec::new());
    for _ in 0..3 {
        assert!(ask(&changing, &url, Reach::Public).await.is_err());
    }
    assert_eq!(visits.load(Ordering::SeqCst), 0);
    // a company's host in the operator's own file, and one that is listed
    assert_eq!(
        ask(&clients(resolver(&["127.0.0.1"]), Vec::new()), &url, Reach::Named).await,
        Ok(StatusCode::OK)
    );
    for listed in [Listed::Host("public.example".to_owned()), Listed::Net(IpAddr::from([127, 0, 0, 0]), 8)] {
        let listing = clients(resolver(&["127.0.0.1"]), vec![listed]);
        assert_eq!(ask(&listing, &url, Reach::Public).await, Ok(StatusCode::OK));
    }
    let listing = clients(Resolver::system(), vec![Listed::Net(IpAddr::from([127, 0, 0, 1]), 32)]);
    assert_eq!(ask(&listing, &format!("http://127.0.0.1:{port}/"), Reach::Public).await, Ok(StatusCode::OK));
    let everything = vec![Listed::Net(IpAddr::from([0, 0, 0, 0]), 0)];
    let refused = ask(&clients(resolver(&["169.254.169.254"]), everything), &url, Reach::Public).await;
    assert!(refused.unwrap_err().contains("link-local"), "no list opens it");
}

#[tokio::test]
async fn a_redirect_leads_to_no_other_origin() {
    let (port, visits) = sink(OK.to_owned()).await;
    let places = [
        format!("http://127.0.0.1:{port}/"),
        format!("http://localhost:{port}/x"),
        format!("//127.0.0.1:{port}/"),
        format!("http://2130706433:{port}/"),
        format!("http://[::ffff:127.0.0.1]:{port}/"),
        "http://169.254.169.254/latest/meta-data/".to_owned(),
        "https://127.0.0.1/".to_owned(),
        "file:///etc/passwd".to_owned(),
    ];
    let system = clients(Resolver::system(), Vec::new());
    for place in &places {
        for status in [301, 302, 303, 307, 308] {
            let answer = format!(
                "HTTP/1.1 {status} Elsewhere\r\nlocation: {place}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            );
            let (from, _) = sink(answer).await;
            let answered = ask(&system, &format!("http://127.0.0.1:{from}/"), Reach::Named).await;
            assert_eq!(answered.map(|status| status.as_u16()), Ok(status), "{place}");
        }
    }
    assert_eq!(visits.load(Ordering::SeqCst), 0);
    let here = "HTTP/1.1 307 Here\r\nlocation: /again\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let (from, came) = sink(here.to_owned()).await;
    let _ = ask(&system, &format!("http://127.0.0.1:{from}/"), Reach::Named).await;
    assert_eq!(
        came.load(Ordering::SeqCst),
        1 + MAX_REDIRECTS,
        "the control: within the origin it is followed"
    );
}
