// SPDX-License-Identifier: BSL-1.0
//! The part of the command line that describes an HTTP load, and the options that it does not have.

use super::Options;
use crate::protocol::http::{PageWords, BODY_BYTES_MAX, BODY_BYTES_MIN, PRESETS, STUDY_REQUESTS};
use clap::Args;

const SCHEME: &str = "http://";

#[derive(Args, Clone, Debug, Default)]
pub struct HttpWords {
    /// Of http: the page (/)
    #[arg(long, value_name = "PATH")]
    pub path: Option<String>,
    /// Of http: POST with a body of JSON of N bytes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(i64::from(BODY_BYTES_MIN)..=i64::from(BODY_BYTES_MAX)))]
    pub body_size: Option<u32>,
}

impl HttpWords {
    pub fn for_agents(&self, word: &mut impl FnMut(&str, String)) {
        if let Some(path) = &self.path {
            word("path", path.clone());
        }
        if let Some(bytes) = self.body_size {
            word("body-size", bytes.to_string());
        }
    }
}

/// The parts of HOST:PORT or http://HOST:PORT/PATH.
pub struct Target<'t> {
    pub authority: &'t str,
    path: Option<&'t str>,
}

impl<'t> Target<'t> {
    pub fn parse(text: &'t str) -> Result<Self, String> {
        let Some(rest) = text.strip_prefix(SCHEME) else {
            return match text.split_once("://") {
                Some((scheme, _)) => Err(format!("{text}: {scheme} is not supported, only {SCHEME}")),
                None => Ok(Self { authority: text, path: None }),
            };
        };
        let (authority, path) = rest.find('/').map_or((rest, None), |at| (&rest[..at], Some(&rest[at..])));
        Ok(Self { authority, path })
    }
}

impl Options {
    /// True if the preset or the server's address is one of HTTP.
    pub(super) fn names_http(&self) -> bool {
        self.preset.as_deref().is_some_and(|preset| PRESETS.contains(&preset)) || self.server.starts_with(SCHEME)
    }

    pub(super) fn page_words(&self, target: &Target) -> PageWords {
        let path = self.http.path.as_deref().or(target.path);
        PageWords { preset: self.preset.clone(), path: path.map(String::from), body_bytes: self.http.body_size }
    }

    /// True if the study's preset sets the number of requests and the pace, which other options have left open.
    fn is_study(&self) -> bool {
        self.is_http() && self.preset.as_deref() == Some("study")
    }

    pub fn is_closed(&self) -> bool {
        let has_pace = self.rate.is_some() || self.rate_file.is_some() || self.scan.is_some() || self.search.is_some();
        self.closed || (self.is_study() && !has_pace)
    }

    /// The number of requests that ends the window; None: it has a length.
    pub fn requests(&self) -> Option<u64> {
        let is_free = self.seconds.is_none() && self.rate_file.is_none() && self.measure_connections == 0;
        self.requests.or((self.is_study() && is_free).then_some(STUDY_REQUESTS))
    }

    /// Err: a line with an option that the protocol does not have.
    pub(super) fn check_protocol(&self) -> Result<(), String> {
        let http = self.is_http();
        if let Some(protocol) = self.protocol.filter(|_| !http && self.names_http()) {
            let named = if self.server.starts_with(SCHEME) { self.server.clone() } else { format!("--preset {}", self.preset()) };
            return Err(format!("{named} is for http, not for --protocol {protocol}"));
        }
        if http && self.preset.as_deref().is_some_and(|preset| !PRESETS.contains(&preset)) {
            return Err(format!("--preset {} is one of memcached; those of http are {}", self.preset(), PRESETS.join(", ")));
        }
        let of_memcached = [
            ("--keys", self.keys.is_some()),
            ("--popularity", self.popularity.is_some()),
            ("--key-size", self.key_size.is_some()),
            ("--value-size", self.value_size.is_some()),
            ("--update", self.update.is_some()),
            ("--expiry", self.expiry.is_some()),
            ("--trace", self.trace.is_some()),
            ("--udp", self.udp),
            ("--check-bytes", self.check_bytes),
            ("--no-preload", self.no_preload),
        ];
        let of_http = [("--path", self.http.path.is_some()), ("--body-size", self.http.body_size.is_some())];
        let foreign = if http { &of_memcached[..] } else { &of_http };
        match foreign.iter().find(|(_, is_given)| *is_given) {
            Some((name, _)) if http => {
                Err(format!("{name} is for memcached; an HTTP load stores nothing, and its replies are always checked"))
            }
            Some((name, _)) => Err(format!("{name} is for --protocol http")),
            None => Ok(()),
        }
    }
}
