use rmcp::model::RequestId;

use super::*;

async fn read(input: &[u8], limit: usize) -> Vec<Line> {
    let mut reader = LineReader::new(BufReader::with_capacity(7, input), limit);
    let mut lines = Vec::new();
    loop {
        match reader.next().await.unwrap() {
            Line::End => return lines,
            line => lines.push(line),
        }
    }
}

fn whole(text: &str) -> Line {
    Line::Whole(text.as_bytes().to_vec())
}

#[tokio::test]
async fn lines_end_with_either_line_end_and_a_cut_off_one_is_dropped() {
    let lines = read(b"\xEF\xBB\xBFone\r\n\ntwo\nthr", 100).await;
    assert_eq!(lines, [whole("one"), whole(""), whole("two")]);
}

#[tokio::test]
async fn a_line_that_is_too_long_tells_its_id_from_either_end() {
    let filler = "x".repeat(2_000);
    let head = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{{"text":"{filler}"}}}}"#);
    let tail = format!(r#"{{"result":{{"id":1,"text":"{filler}"}},"jsonrpc":"2.0","id":"a"}}"#);
    let none = format!(r#"{{"result":{{"id":1,"text":"{filler}"}}}}"#);
    let input = format!("{head}\nshort\n{tail}\n{none}\nend\n");
    let lines = read(input.as_bytes(), 1_000).await;
    let long = |id| Line::TooLong { id };
    let expected = [
        long(Some(RequestId::Number(7))),
        whole("short"),
        long(Some(RequestId::String("a".into()))),
        long(None),
        whole("end"),
    ];
    assert_eq!(lines, expected);
}

#[tokio::test]
async fn a_line_of_the_limit_is_read_and_one_byte_more_is_not() {
    for limit in [1_000, MAX_LINE] {
        let long = Line::TooLong { id: None };
        for (length, is_read) in [(limit, true), (limit + 1, false), (100 * 1_000 + limit, false)] {
            let line = "x".repeat(length);
            let expected = if is_read { whole(&line) } else { long.clone() };
            assert_eq!(read(format!("{line}\n").as_bytes(), limit).await, [expected], "{length} of {limit}");
        }
    }
}

#[tokio::test]
async fn an_endless_line_is_reported_before_it_ends() {
    let input = format!(r#"{{"jsonrpc":"2.0","id":9,"result":"{}"#, "x".repeat(5_000));
    assert_eq!(read(input.as_bytes(), 1_000).await, [Line::TooLong { id: Some(RequestId::Number(9)) }]);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_read_costs_a_message_its_time_and_no_more() {
    use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ListToolsRequest};
    let (ours, _theirs) = tokio::io::duplex(64);
    let (reader, writer) = tokio::io::split(ours);
    let mut transport = StdioTransport::new(reader, writer, Arc::default());
    let request = || {
        let request = ClientRequest::ListToolsRequest(ListToolsRequest::default());
        ClientJsonRpcMessage::request(request, RequestId::Number(1))
    };
    let started = tokio::time::Instant::now();
    assert!(transport.send(request()).await.is_ok());
    assert_eq!(transport.send(request()).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    assert_eq!(started.elapsed(), WRITE_TIMEOUT);
    // half a message may be in the pipe
    assert_eq!(transport.send(request()).await.unwrap_err().kind(), io::ErrorKind::NotConnected);
}
