use lf_config::*;
fn main() {
    let mode = std::env::args().nth(1).unwrap();
    if mode == "schema" {
        println!("{}", serde_json::to_string_pretty(&schema()).unwrap());
        return;
    }
    if mode == "init" {
        print!("{}", init("my-farm", "default"));
        return;
    }
    if mode == "render" {
        let path = std::env::args().nth(2).unwrap();
        match load(std::path::Path::new(&path), |_| None) {
            Ok(loaded) => println!("{}", loaded.render_diagnostics(Style::Plain)),
            Err(error) => println!("{error}"),
        }
        return;
    }
    for path in std::env::args().skip(2) {
        println!("=== {path}");
        let start = std::time::Instant::now();
        match load(std::path::Path::new(&path), |n| std::env::var(n).ok()) {
            Ok(loaded) => {
                println!(
                    "OK servers={:?} models={:?}",
                    loaded.project.servers.iter().map(|(k, v)| (k, v.is_ok())).collect::<Vec<_>>(),
                    loaded
                        .project
                        .models
                        .iter()
                        .map(|(k, v)| (
                            k,
                            v.as_ref()
                                .map(|m| (m.servers.clone(), m.prompts.clone(), m.tools.len()))
                                .map_err(|e| e.reason.clone())
                        ))
                        .collect::<Vec<_>>()
                );
                println!("{}", loaded.render_diagnostics(Style::Plain));
                if mode == "show" {
                    println!("{}", show(&loaded));
                }
            }
            Err(error) => println!("{error}"),
        }
        println!("--- {:?}", start.elapsed());
    }
}
