#[path = "/work/main/tests/src/corpus/deltas.rs"] mod deltas;
#[path = "/work/main/tests/src/corpus/schemas.rs"] mod schemas;
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let split = args.get(2).and_then(|s| s.parse().ok()).unwrap_or(0);
    for line in std::io::stdin().lines() {
        let case: serde_json::Value = serde_json::from_str(&line.unwrap()).unwrap();
        let out = if args[1] == "deltas" { deltas::run(&case, split) } else { schemas::run(&case) };
        println!("{}", out.unwrap());
    }
}
