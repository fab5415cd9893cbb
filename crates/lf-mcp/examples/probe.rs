use lf_core::project::*;use lf_core::tool::*;use std::sync::Arc;use std::time::{Duration,Instant};
fn main(){
 rustls::crypto::ring::default_provider().install_default().unwrap();
 tracing_subscriber::fmt().with_env_filter(std::env::var("LF_LOG").unwrap_or("lf_mcp=debug,rmcp=warn".into())).init();
 tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(run());
}
async fn run(){
 let a:Vec<String>=std::env::args().skip(1).collect();
 let transport=match a[0].as_str(){
  "http"=>Transport::Http(HttpServer{base_url:a[1].clone(),headers:vec![("X-Test".into(),"abcdefghi".into())]}),
  "sse"=>Transport::Sse(HttpServer{base_url:a[1].clone(),headers:vec![("X-Test".into(),"abcdefghi".into())]}),
  _=>Transport::Stdio(StdioServer{command:a[1].clone(),args:a[2..].iter().map(|x|x.clone().into()).collect(),env:vec![("FOO".into(),"bar".into())],inherit_env:vec![],cwd:".".into()}),
 };
 let s=Arc::new(McpServer{name:"s".into(),transport,tools:ToolFilter::default(),timeout:Duration::from_secs(30),max_timeout:Duration::from_secs(300),startup_timeout:Duration::from_secs(60),required:false});
 let pool=lf_mcp::SessionPool::new(lf_mcp::PoolOptions::new(std::env::vars().collect(),std::env::current_exe().unwrap()));
 let t=pool.tools([("s".to_string(),Ok(s.clone()))]);
 let at=Instant::now();
 let c=t.list(&["s".into()]).await;
 println!("{:?} tools={:?} down={:?}",at.elapsed(),c.tools.iter().map(|t|t.id.name.to_string()).collect::<Vec<_>>(),c.down);
 for r in t.probe().await{println!("{r:?}");}
 let calls=std::env::var("CALLS").unwrap_or_default();
 for call in calls.split(';').filter(|c|!c.is_empty()){
  let (n,args)=call.split_once(' ').unwrap_or((call,"{}"));
  let at=Instant::now();
  if n=="sleep"{tokio::time::sleep(Duration::from_millis(args.parse().unwrap())).await;continue}
  let r=t.call(&ToolRef{server:"s".into(),name:n.into()},&serde_json::from_str(args).unwrap(),&|p|println!("  progress {p:?}")).await;
  let text=format!("{r:?}");
  println!("{:?} {n} -> {}",at.elapsed(),text.chars().take(600).collect::<String>());
 }
 let at=Instant::now();
 pool.shutdown().await;
 println!("shutdown {:?}",at.elapsed());
}
