// SPDX-License-Identifier: BSL-1.0
//! Compares moderation with a model that checks every vector every microsecond.

use super::driver::Driver;
use super::noise::Noise;
use crate::registers::{field, Register};
use crate::{Event, Nanoseconds};

const VECTORS: usize = 3;
const MICROSECOND: Nanoseconds = 1_000;

#[derive(Default)]
struct Vector {
    interval_us: u64,
    silent_until_us: u64,
    wants: bool,
    urgent: bool,
    needs_credit: bool,
    credits: u64,
    /// Microseconds since the last credit.
    age_us: u64,
}

#[derive(Default)]
struct Model {
    now_us: u64,
    credit_us: u64,
    vectors: [Vector; VECTORS],
    sent: Vec<(u64, u8)>,
}

impl Model {
    fn step_vectors(&mut self) {
        for (number, vector) in self.vectors.iter_mut().enumerate().filter(|(_, vector)| vector.wants) {
            let over = self.now_us >= vector.silent_until_us;
            let free = !vector.needs_credit || self.credit_us == 0;
            let urgent = vector.urgent && (free || vector.credits > 0);
            if over || urgent {
                if !over && !free {
                    vector.credits -= 1;
                }
                self.sent.push((self.now_us, number as u8));
                vector.silent_until_us = self.now_us + vector.interval_us;
                (vector.wants, vector.urgent) = (false, false);
            }
        }
    }

    fn step(&mut self) {
        self.now_us += 1;
        for vector in &mut self.vectors {
            vector.age_us += 1;
            if self.credit_us != 0 && vector.age_us == self.credit_us {
                vector.age_us = 0;
                vector.credits = (vector.credits + 1).min(31);
            }
        }
        self.step_vectors();
    }

    fn write_eitr(&mut self, number: usize, value: u32) {
        use field::eitr::*;
        let vector = &mut self.vectors[number];
        vector.interval_us = u64::from(ITR_INTERVAL.get(value)) * 2;
        vector.needs_credit = LLI_MODERATION.is_set(value);
        if !COUNTER_WRITE_DISABLE.is_set(value) {
            vector.silent_until_us = self.now_us + u64::from(ITR_COUNTER.get(value)) * 8;
            vector.credits = u64::from(LLI_CREDIT.get(value));
            vector.age_us = 0;
        }
        self.step_vectors();
    }
}

#[test]
fn every_message_is_sent_when_the_model_says() {
    for seed in 1..=60u64 {
        let mut noise = Noise::new(seed);
        let mut driver = Driver::up(VECTORS, 64);
        let start = driver.now;
        driver.card.start_interrupt_trace(start, 100_000);
        let mut model = Model::default();
        for _ in 0..400 {
            let number = noise.below(VECTORS as u64) as usize;
            match noise.below(12) {
                0 => {
                    use field::eitr::*;
                    let value = ITR_INTERVAL.put(noise.below(60) as u32)
                        | LLI_MODERATION.put(noise.below(2) as u32)
                        | LLI_CREDIT.put(noise.below(4) as u32)
                        | ITR_COUNTER.put(noise.below(12) as u32)
                        | COUNTER_WRITE_DISABLE.put(noise.below(2) as u32);
                    driver.write_at(Register::Eitr, number, value);
                    model.write_eitr(number, value);
                }
                1 if noise.below(4) == 0 => {
                    let steps = noise.below(16) as u32;
                    let kept = driver.read(Register::Gpie) & !field::gpie::LLI_INTERVAL.ones();
                    driver.write(Register::Gpie, kept | field::gpie::LLI_INTERVAL.put(steps));
                    model.credit_us = u64::from(steps) * 4;
                    model.vectors.iter_mut().for_each(|vector| vector.age_us = 0);
                    model.step_vectors();
                }
                2..=4 => {
                    driver.card.interrupts.low_latency_event(&driver.card.regs, &mut driver.host, driver.now, number);
                    (model.vectors[number].wants, model.vectors[number].urgent) = (true, true);
                    model.step_vectors();
                }
                5..=8 => {
                    driver.card.interrupts.receive_event(&driver.card.regs, &mut driver.host, driver.now, number);
                    model.vectors[number].wants = true;
                    model.step_vectors();
                }
                _ => {
                    let pause = noise.below(40);
                    driver.advance(pause * MICROSECOND);
                    (0..pause).for_each(|_| model.step());
                }
            }
        }
        let mut sent: Vec<(u64, u8)> = driver
            .card
            .interrupt_trace()
            .take(usize::MAX)
            .filter(|entry| matches!(entry.event, Event::Message { .. }))
            .map(|entry| ((entry.at - start) / MICROSECOND, entry.vector))
            .collect();
        // Vectors that are due at the same time may send in any order.
        sent.sort_unstable();
        model.sent.sort_unstable();
        assert!(sent.len() > 100, "seed {seed}: {}", sent.len());
        assert_eq!(sent, model.sent, "seed {seed}");
    }
}
