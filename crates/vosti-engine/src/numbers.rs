//! The numbers of sampling: one table, whose rows name a number, its type, its neutral value and its range, and say what it does.
//!
//! Everything that lists the numbers is made from the table: the parameters and their check here, the server's requests and receipts,
//! the command's flags and `/set`, the page's settings, the Python package's engine, the defaults of a model's files.
//! [`sampling_numbers!`](crate::sampling_numbers) gives the rows to another macro. What a number does to a row of logits is in
//! `sampler.rs`. Read next: `sampling.rs`.

use crate::SamplingError;
use std::fmt;
use std::ops::RangeInclusive;

/// Gives every row of the table to the macro whose path is in brackets, after the tokens in braces: `[path::to::macro] { tokens }`.
///
/// A row is `/// documentation`, `name: type as type in a request = neutral value, { range }, "key";`. The range is what a JSON schema
/// says; -1 is the least of a whole number, as another word for 0. The key is that of a GGUF file, after `general.sampling.`; empty: none.
#[macro_export]
macro_rules! sampling_numbers {
    ([$($then:tt)*] { $($before:tt)* }) => {
        $($then)*! { { $($before)* }
            /// 0 always takes the most likely token; higher is more varied.
            temperature: f32 as f32 = 1.0, { minimum = 0, maximum = 100 }, "temp";
            /// Keep this many of the most likely tokens; 0 or -1 keeps all.
            top_k: u32 as i64 = 0, { minimum = -1 }, "top_k";
            /// Keep the most likely tokens that together have this probability; 1 keeps all.
            top_p: f32 as f32 = 1.0, { exclusive_minimum = 0, maximum = 1 }, "top_p";
            /// Keep the tokens whose surprise is nearest to the expected one and that together have this probability; 1 keeps all.
            typical_p: f32 as f32 = 1.0, { exclusive_minimum = 0, maximum = 1 }, "";
            /// Drop tokens whose probability is below this times that of the most likely token; 0 drops none.
            min_p: f32 as f32 = 0.0, { minimum = 0, maximum = 1 }, "min_p";
            /// Divides positive and multiplies negative logits of tokens in the prompt or the answer; 1 changes none.
            repetition_penalty: f32 as f32 = 1.0, { exclusive_minimum = 0, maximum = 100 }, "penalty_repeat";
            /// Subtracted from the logits of tokens in the answer; 0 changes none.
            presence_penalty: f32 as f32 = 0.0, { minimum = -2, maximum = 2 }, "";
            /// Subtracted from the logits of tokens in the answer, once per occurrence; 0 changes none.
            frequency_penalty: f32 as f32 = 0.0, { minimum = -2, maximum = 2 }, "";
        }
    };
}

/// The type of a number.
trait Number: Copy {
    /// As it comes in a request.
    type Given: Copy;

    /// The number, or the error that names it.
    fn of(name: &'static str, given: Self::Given) -> Result<Self, SamplingError>;

    /// The number of a file.
    fn given(number: f64) -> Option<Self::Given>;

    fn value(self) -> Value;
}

/// A number of any type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// Shown as short as it can be.
    Float(f32),
    /// Of a request it may be negative.
    Whole(i64),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Float(number) => number.fmt(f),
            Value::Whole(number) => number.fmt(f),
        }
    }
}

impl Number for f32 {
    type Given = f32;

    fn of(_: &'static str, given: f32) -> Result<f32, SamplingError> {
        Ok(given)
    }

    fn given(number: f64) -> Option<f32> {
        Some(number as f32)
    }

    fn value(self) -> Value {
        Value::Float(self)
    }
}

impl Number for u32 {
    type Given = i64;

    fn of(name: &'static str, given: i64) -> Result<u32, SamplingError> {
        let wrong =
            SamplingError::OutOfRange { name, value: Value::Whole(given), range: "at least 1, or 0 or -1 for all" };
        u32::try_from(given.max(-1) + i64::from(given == -1)).map_err(|_| wrong)
    }

    fn given(number: f64) -> Option<i64> {
        (number.fract() == 0.0 && (-1.0..=f64::from(u32::MAX)).contains(&number)).then_some(number as i64)
    }

    fn value(self) -> Value {
        Value::Whole(i64::from(self))
    }
}

/// What a schema says of a number's range, as values and as words.
macro_rules! range {
    (minimum = $least:literal, maximum = $most:literal) => {
        ($least as f32..=$most as f32, false, concat!("between ", $least, " and ", $most))
    };
    (exclusive_minimum = $least:literal, maximum = $most:literal) => {
        ($least as f32..=$most as f32, true, concat!("above ", $least, " and at most ", $most))
    };
    // A whole number has no other limit than its type's.
    (minimum = -1) => {
        (0.0..=u32::MAX as f32, false, "at least 0")
    };
}

fn check(
    name: &'static str,
    value: Value,
    range: (RangeInclusive<f32>, bool, &'static str),
) -> Result<(), SamplingError> {
    let number = match value {
        Value::Float(number) => number,
        Value::Whole(number) => number as f32,
    };
    let (within, open, range) = range;
    if within.contains(&number) && !(open && number == *within.start()) {
        return Ok(());
    }
    Err(SamplingError::OutOfRange { name, value, range })
}

macro_rules! structs {
    ({} $($(#[$doc:meta])* $name:ident: $type:ident as $given:ident = $neutral:literal, { $($range:tt)* }, $key:literal;)*) => {
        /// Every number of a request. `Default` is neutral: the model's own distribution.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub struct Numbers {
            $($(#[$doc])* pub $name: $type,)*
        }

        impl Default for Numbers {
            fn default() -> Self {
                Self { $($name: $neutral,)* }
            }
        }

        impl Numbers {
            /// Their names, in the order of the table.
            pub const NAMES: &[&str] = &[$(stringify!($name)),*];

            /// Every name with its number.
            pub fn all(&self) -> impl Iterator<Item = (&'static str, Value)> + use<> {
                [$((stringify!($name), self.$name.value())),*].into_iter()
            }

            /// An error that names the first number out of its range.
            pub fn check(&self) -> Result<(), SamplingError> {
                $(check(stringify!($name), self.$name.value(), range!($($range)*))?;)*
                Ok(())
            }
        }

        /// The numbers that a request, a flag or a file gives.
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        #[expect(missing_docs, reason = "as in `Numbers`")]
        pub struct Given {
            $(pub $name: Option<$given>,)*
        }

        impl Given {
            /// These, and the others from `defaults`. An error that names a whole number out of range; ranges are checked by
            /// [`Numbers::check`].
            pub fn over(&self, defaults: &Numbers) -> Result<Numbers, SamplingError> {
                Ok(Numbers {
                    $($name: self.$name.map_or(Ok(defaults.$name), |given| <$type>::of(stringify!($name), given))?,)*
                })
            }

            /// Sets the number of this name from its text; none if the table has no such name, an error if the text is no number.
            pub fn set(&mut self, name: &str, text: &str) -> Option<Result<(), ()>> {
                match name {
                    $(stringify!($name) => Some(text.parse().map(|number| self.$name = Some(number)).map_err(drop)),)*
                    _ => None,
                }
            }

            /// Those that a file gives, by `number`, which gets each name and the key of a GGUF file. A number that is not whole where
            /// it must be is an error with its name.
            pub fn read<E>(
                number: impl Fn(&'static str, &'static str) -> Result<Option<f64>, E>,
                wrong: impl Fn(&'static str, &'static str, f64) -> E,
            ) -> Result<Self, E> {
                Ok(Self {
                    $($name: match number(stringify!($name), $key)? {
                        Some(number) => Some(<$type>::given(number).ok_or_else(|| wrong(stringify!($name), $key, number))?),
                        None => None,
                    },)*
                })
            }
        }
    };
}
sampling_numbers!([structs] {});

/// The numbers of requests that give none, and where they come from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Defaults {
    /// Neutral ones, if nothing recommends others.
    pub numbers: Numbers,
    /// Such as a file's name; none: they are OpenAI's, which are neutral.
    pub source: Option<&'static str>,
}

/// For a banner: the first number, and every other one that is not neutral.
impl fmt::Display for Defaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let neutral = Numbers::default();
        let all = self.numbers.all().zip(neutral.all());
        let shown = all.enumerate().filter(|(i, (number, neutral))| *i == 0 || number != neutral);
        let shown: Vec<String> = shown.map(|(_, ((name, value), _))| format!("{name} {value}")).collect();
        write!(f, "{} ({})", shown.join(", "), self.source.unwrap_or("OpenAI's"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_given_checked_and_named() {
        let mut given = Given::default();
        assert_eq!(given.over(&Numbers::default()), Ok(Numbers::default()));
        assert_eq!(given.set("top_k", "-1"), Some(Ok(())));
        assert_eq!(given.set("temperature", "hot"), Some(Err(())));
        assert_eq!(given.set("heat", "1"), None);
        let defaults = Numbers { top_k: 7, temperature: 0.5, ..Numbers::default() };
        let over = given.over(&defaults).unwrap();
        assert_eq!((over.top_k, over.temperature), (0, 0.5), "-1 keeps all");
        given.top_k = Some(1 << 32);
        assert!(
            given.over(&defaults).unwrap_err().to_string().starts_with("top_k is 4294967296;"),
            "every digit is told"
        );
        given.top_k = Some(-2);
        assert_eq!(
            given.over(&defaults).unwrap_err().to_string(),
            "top_k is -2; it must be at least 1, or 0 or -1 for all"
        );
        let told = |numbers: Numbers| numbers.check().unwrap_err().to_string();
        assert_eq!(told(Numbers { top_p: 0.0, ..defaults }), "top_p is 0; it must be above 0 and at most 1");
        assert_eq!(
            told(Numbers { presence_penalty: 3.0, ..defaults }),
            "presence_penalty is 3; it must be between -2 and 2"
        );
        assert!(Numbers { temperature: f32::NAN, ..defaults }.check().is_err());
        assert_eq!(defaults.check(), Ok(()));
    }

    #[test]
    fn a_file_gives_what_it_has() {
        let read = |numbers: &[(&str, f64)]| {
            let number = |name, _| Ok(numbers.iter().find(|(known, _)| *known == name).map(|(_, number)| *number));
            Given::read(number, |name, _, number| format!("{name} {number}"))
        };
        assert_eq!(read(&[("temperature", 0.6), ("top_k", -1.0)]).unwrap().top_k, Some(-1));
        assert_eq!(read(&[("top_k", 1.5)]), Err("top_k 1.5".into()));
        let numbers = read(&[("temperature", 0.6), ("top_k", 20.0)]).unwrap().over(&Numbers::default()).unwrap();
        let defaults = Defaults { numbers, source: Some("a file") };
        assert_eq!(defaults.to_string(), "temperature 0.6, top_k 20 (a file)");
        assert_eq!(Defaults::default().to_string(), "temperature 1 (OpenAI's)");
    }
}
