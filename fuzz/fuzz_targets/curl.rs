//! Whatever is accepted as a command line of curl is one request, and goes to the server that is asked for if there is one. What
//! is refused is refused in one line.
#![no_main]

mod one_request;

use drover_load::input::curl;
use drover_load::plan::request::RequestTemplate;
use drover_load::plan::target::Url;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &str| {
    let server: Url = "http://127.0.0.1:8".parse().expect("a URL");
    let mut read = |name: &str| Ok(name.as_bytes().to_vec());
    let texts = [input.to_owned(), format!("curl {input}")];
    for text in texts {
        let own = curl::parse(&text, None, &mut read);
        let elsewhere = curl::parse(&text, Some(&server), &mut read);
        if let (Ok(own), Ok(elsewhere)) = (&own, &elsewhere) {
            assert_eq!(own.url.path, elsewhere.url.path);
            let fields = |request: &RequestTemplate| {
                let is_host = |field: &&String| field.to_ascii_lowercase().starts_with("host:");
                request.content.fields.iter().filter(|it| !is_host(it)).cloned().collect::<Vec<_>>()
            };
            assert_eq!(fields(own), fields(elsewhere));
            assert_eq!(own.content.body, elsewhere.content.body);
        }
        for parsed in [own, elsewhere.inspect(|it| assert_eq!(it.url.authority, server.authority))]
        {
            match parsed {
                Ok(request) => one_request::is_one_request(&request),
                Err(told) => {
                    assert!(!told.is_empty() && !told.contains(char::is_control), "{told:?}")
                }
            }
        }
    }
});
