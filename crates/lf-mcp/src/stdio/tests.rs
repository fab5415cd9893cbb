use rmcp::model::RequestId;

use super::line::{Line, LineReader};

async fn read(input: &[u8], limit: usize) -> Vec<Line> {
    let mut reader = LineReader::new(tokio::io::BufReader::with_capacity(7, input), limit);
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
async fn an_endless_line_is_reported_before_it_ends() {
    let input = format!(r#"{{"jsonrpc":"2.0","id":9,"result":"{}"#, "x".repeat(5_000));
    assert_eq!(read(input.as_bytes(), 1_000).await, [Line::TooLong { id: Some(RequestId::Number(9)) }]);
}
