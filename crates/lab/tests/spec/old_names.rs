//! Files that earlier versions read.

use crate::{Memory, WHOLE};

/// An experiment with a generator of others.
const OF_COMMAND: &str = "
schema = 'drover.experiment/2'
id = 'x'
[subject.a]
serve = ['--response-size', '128']
[load.command]
command = ['x', '{url}']
[load.command.metrics]
response-rate = '/rate'
[presets.quick]
";

#[test]
fn a_file_with_the_names_of_earlier_versions_is_the_same_experiment() {
    for present in [WHOLE, OF_COMMAND] {
        let former = present
            .replace("response-rate", "reply-rate")
            .replace("cpu-per-response", "cpu-per-reply");
        assert_ne!(former, present);
        let read = |text: &str| Memory::new([("f.toml", text)]).read("f.toml");
        let (former, present) = (read(&former).unwrap(), read(present).unwrap());
        assert_eq!(former.load, present.load);
        assert_eq!(former.claim, present.claim);
        assert_eq!(former.figure, present.figure);
    }
}
