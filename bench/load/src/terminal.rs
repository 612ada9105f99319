// SPDX-License-Identifier: BSL-1.0
//! Text for the terminal. An agent, a master or a Neap machine may have sent parts of it, so control characters are escaped.

/// Escapes all control characters except line feeds.
pub fn shown(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() && letter != '\n' {
            plain.extend(letter.escape_default());
        } else {
            plain.push(letter);
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped() {
        assert_eq!(shown("a\x1b[2J\r\u{9b}\0b\nc µs"), "a\\u{1b}[2J\\r\\u{9b}\\u{0}b\nc µs");
    }
}
