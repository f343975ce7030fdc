//! Answers behind thoughts, and the tokens that mark both.

use super::*;

#[test]
fn calls_may_come_after_thoughts() {
    let call = "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";
    let grammar = tools(Choice::Auto, true).after(Some(Thinking::May), None);
    for good in ["Hi.".to_string(), call.into(), format!("<think>a <tool_call> b</think>\n\nNow.{call}")] {
        assert!(allows(&grammar, &good), "{good:?}");
    }
}

#[test]
fn where_tokens_are_the_marks_a_text_that_spells_one_is_a_text() {
    let Grammar::Tools(tools) = tools(Choice::Auto, true) else { panic!("no tools") };
    let by_token = Grammar::Tools(tools.by_token(|mark| (mark == "<tool_call>").then_some(CALL)));
    let call = [vec![CALL], spelled("\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>")].concat();
    let prose = spelled("Write <tool_call> before a call.");
    let thought = [spelled("<think>a <tool_call> and </think> b\n"), vec![CLOSE], spelled("\n\n")].concat();
    let brief = [spelled("<think>"), vec![CLOSE]].concat();
    for (grammar, before) in [
        (by_token.clone(), vec![]),
        (by_token.clone().after(Some(Thinking::May), Some(CLOSE)), vec![]),
        (by_token.clone().after(Some(Thinking::May), Some(CLOSE)), thought.clone()),
        (by_token.clone().after(Some(Thinking::May), Some(CLOSE)), brief),
        (by_token.clone().after(Some(Thinking::Begun), Some(CLOSE)), thought),
    ] {
        let may = |parts: &[&[Token]]| allows_tokens(&grammar, &[&before[..], &parts.concat()].concat());
        for good in [&[&prose[..]][..], &[&call], &[&prose, &call], &[], &[&call, &spelled("\n"), &call]] {
            assert!(may(good), "{grammar:?} {before:?} {good:?}");
        }
        for bad in [&[&[CALL][..]][..], &[&prose, &[CALL]], &[&call, &prose], &[&[CALL], &prose]] {
            assert!(!may(bad), "{grammar:?} {before:?} {bad:?}");
        }
    }
    let held = Grammar::Regex("[a-c]+".into()).after(Some(Thinking::Begun), Some(CLOSE));
    let answer = |end: &[Token]| [&spelled("hm </think> ab"), end, &spelled("\n\nabc")].concat();
    assert!(allows_tokens(&held, &answer(&[CLOSE])) && !allows_tokens(&held, &answer(&spelled("</think>"))));
    // Beside a text that is held, the text begins with no mark, so the mark may be spelled.
    let Grammar::Tools(tools) = by_token else { panic!("no tools") };
    let held = Grammar::Tools(tools.or(Grammar::Regex("[a-c]+".into())));
    assert!(
        allows(&held, "<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>")
            && allows_tokens(&held, &call)
    );
}

#[test]
fn harmonys_answers_are_held_in_their_channels() {
    let named = |tools: Grammar| match tools {
        Grammar::Tools(tools) => Grammar::Tools(tools.in_form(Some(tools::format::Format::Harmony))),
        grammar => grammar,
    };
    let auto = named(tools(Choice::Auto, true)).after(Some(Thinking::Harmony), None);
    let required = named(tools(Choice::Required, true)).after(Some(Thinking::Harmony), None);
    let Grammar::Tools(held) = named(tools(Choice::Auto, true)) else { panic!("no tools") };
    let held = Grammar::Tools(held.or(Grammar::Choice(vec!["yes".into()]))).after(Some(Thinking::Harmony), None);
    let choice = Grammar::Choice(vec!["yes".into()]).after(Some(Thinking::Harmony), None);
    let call = "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}";
    let wrong = "<|channel|>commentary to=functions.then <|constrain|>json<|message|>{}";
    let (yes, no) = ("<|channel|>final<|message|>yes", "<|channel|>final<|message|>no");
    for thought in ["", "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant"] {
        let good =
            [(&auto, call), (&auto, yes), (&auto, no), (&required, call), (&choice, yes), (&held, call), (&held, yes)];
        let bad = [(&auto, wrong), (&required, yes), (&choice, no), (&choice, call), (&auto, "yes"), (&held, no)];
        for (grammar, text) in good {
            assert!(allows(grammar, &format!("{thought}{text}")), "{grammar:?} {thought}{text}");
        }
        for (grammar, text) in bad {
            assert!(!allows(grammar, &format!("{thought}{text}")), "{grammar:?} {thought}{text}");
        }
    }
}
