//! FP16 and FP8 as BF16.
//!
//! A proof knows of a number in memory only that it is one, and of arithmetic only that it is a function. So a value of FP16 or FP8 may
//! stand as one of BF16, if no two functions become one and no two constants do: a cast to or from such a type is a function of its own
//! (`foreign.rs`), and a constant stays only if BF16 has it. Of casts of BF16 itself a proof knows more (they keep the sign of zero),
//! which it does not know of these. A kernel that computes with FP16 and with BF16 adds in both by one function; the two never meet,
//! because a buffer has one type and the casts differ. Runs of the changed text are no runs of the kernel. Read next: `foreign.rs`.

/// As the TTIR writes them.
const NARROW: [&str; 3] = ["f16", "f8E4M3FN", "f8E5M2"];

pub(super) struct Cast {
    pub function: String,
    pub operand: String,
    /// With BF16 for FP16 and FP8.
    pub from: String,
    pub to: String,
    /// The same tile in FP32.
    pub ty: String,
}

/// The element of a type, and what stands before and behind it.
fn parts(ty: &str) -> (&str, &str, &str) {
    match ty.strip_suffix('>').and_then(|tile| tile.rsplit_once('x')) {
        Some((before, element)) => (&ty[..=before.len()], element, ">"),
        None => ("", ty, ""),
    }
}

/// Whether a type is of integers that are no truth values.
pub(super) fn integer(ty: &str) -> bool {
    ["i8", "i32", "i64"].contains(&parts(ty).1)
}

/// `arith.truncf %x : tensor<64xf32> to tensor<64xf16>`, or `tt.fp_to_fp %x, rounding = rtne : A -> B`, of FP16 or FP8.
pub(super) fn cast(op: &str) -> Option<Cast> {
    let (word, rest) = op.split_once(' ')?;
    let (operand, types) = rest.split_once(" : ")?;
    let (from, to) = types.split_once(" to ").or_else(|| types.split_once(" -> "))?;
    let known = ["arith.extf", "arith.truncf", "arith.sitofp", "arith.fptosi", "tt.fp_to_fp"];
    let ((before, a, after), (_, b, _)) = (parts(from), parts(to));
    let other = |element| ["f32", "bf16", "i8", "i32", "i64"].contains(&element);
    let narrow = |element| NARROW.contains(&element);
    let wanted = word == "tt.fp_to_fp" || narrow(a) || narrow(b);
    if !known.contains(&word) || !wanted || ![a, b].into_iter().all(|element| other(element) || narrow(element)) {
        return None;
    }
    let wide = |ty: &str| widened(ty).unwrap_or_else(|| ty.to_string());
    let (operand, how) = operand.split_once(", ").unwrap_or((operand, ""));
    Some(Cast {
        function: format!("{word} {how} {a} {b}"),
        operand: operand.to_string(),
        from: wide(from),
        to: wide(to),
        ty: format!("{before}f32{after}"),
    })
}

/// A line with BF16 for each type of FP16 or FP8; None if it has none, or a constant that BF16 has not, or looks at bits: a pointer to
/// FP8 as one to FP16 addresses other bytes.
pub(super) fn widened(line: &str) -> Option<String> {
    if line.contains("bitcast") {
        return None;
    }
    let mut text = line.to_string();
    for narrow in NARROW {
        let mut from = 0;
        while let Some(at) = text[from..].find(narrow).map(|at| from + at) {
            let (before, after) = (&text[..at], &text[at + narrow.len()..]);
            let starts = before.is_empty() || before.ends_with(['x', '<', ' ', '(']);
            let ends = after.is_empty() || after.starts_with(['>', ',', ')', ' ']);
            from = at + narrow.len();
            if starts && ends {
                text = format!("{before}bf16{after}");
                from = at + "bf16".len();
            }
        }
    }
    if text == line {
        return None;
    }
    if let Some((name, rest)) = text.split_once(" = arith.constant ") {
        let (value, ty) = rest.split_once(" : ")?;
        let plain = value.strip_prefix("dense<").and_then(|value| value.strip_suffix('>'));
        let number = match plain.unwrap_or(value) {
            // Infinities of FP16.
            "0x7C00" => "0x7F80".to_string(),
            "0xFC00" => "0xFF80".to_string(),
            number => {
                let exact = number.parse::<f32>().ok()?.to_bits() & 0xffff == 0;
                exact.then(|| number.to_string())?
            }
        };
        let value = if plain.is_some() { format!("dense<{number}>") } else { number };
        text = format!("{name} = arith.constant {value} : {ty}");
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_stand_as_bf16_and_names_stay() {
        let line = "    %f16 = tt.load %x_f16, %m : tensor<64x!tt.ptr<f16>>";
        assert_eq!(widened(line).unwrap(), "    %f16 = tt.load %x_f16, %m : tensor<64x!tt.ptr<bf16>>");
        assert_eq!(
            widened("  tt.func private @\"a__fp16__\"(%a: f16) -> f8E4M3FN attributes {}").unwrap(),
            "  tt.func private @\"a__fp16__\"(%a: bf16) -> bf16 attributes {}"
        );
        assert_eq!(widened("    %1 = arith.addf %0, %0 : tensor<64xbf16>"), None);
        assert_eq!(
            widened("    %c = arith.constant dense<0xFC00> : tensor<64xf16>").unwrap(),
            "    %c = arith.constant dense<0xFF80> : tensor<64xbf16>"
        );
        assert_eq!(
            widened("    %c = arith.constant 1.000000e+00 : f16").unwrap(),
            "    %c = arith.constant 1.000000e+00 : bf16"
        );
        assert_eq!(widened("    %p = tt.bitcast %x : !tt.ptr<f8E4M3FN> -> !tt.ptr<f16>"), None);
        // BF16 has no 0.1 of FP16.
        assert_eq!(widened("    %c = arith.constant 9.997550e-02 : f16"), None);
    }

    #[test]
    fn a_cast_of_two_types_is_a_function_of_its_own() {
        let cast = |op| cast(op).map(|cast| (cast.function, cast.from, cast.to, cast.ty));
        let of = |parts: [&str; 4]| Some(<(String, String, String, String)>::from(parts.map(String::from)));
        assert_eq!(
            cast("arith.truncf %0 : tensor<4xf32> to tensor<4xf16>"),
            of(["arith.truncf  f32 f16", "tensor<4xf32>", "tensor<4xbf16>", "tensor<4xf32>"])
        );
        assert_eq!(
            cast("tt.fp_to_fp %0, rounding = rtne : f16 -> f8E4M3FN"),
            of(["tt.fp_to_fp rounding = rtne f16 f8E4M3FN", "bf16", "bf16", "f32"])
        );
        assert_eq!(cast("arith.truncf %0 : tensor<4xf32> to tensor<4xbf16>"), None);
    }
}
