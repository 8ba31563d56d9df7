package instrumentation

import "regexp"

// advices say what helps when the go command fails for a reason that has nothing to do with hooks. The first that
// matches its message is used.
var advices = []struct {
	message *regexp.Regexp
	text    string
}{
	{
		regexp.MustCompile(`dubious ownership|error obtaining VCS status`),
		"go asks git about the repository, to stamp the executable, and git refuses: " +
			"`git config --global --add safe.directory DIR`, or GOFLAGS=-buildvcs=false",
	},
	{
		regexp.MustCompile(`terminal prompts disabled|could not read Username|Permission denied \(publickey\)`),
		"if the module is private, go needs GOPRIVATE for it and git its credentials, as for `go build`",
	},
	{
		regexp.MustCompile(`reading https?://\S+: (403|404|410)|unrecognized import path|unknown revision`),
		"go cannot get this module, so `go build` without a cache does not either: " +
			"a private one needs GOPRIVATE; one that is gone needs `build.replace` in the suite, or a `replace` in " +
			"go.mod",
	},
	{
		regexp.MustCompile(`no such host|connection refused|i/o timeout|network is unreachable`),
		"go cannot reach the network that it gets modules from: see GOPROXY",
	},
}

// withAdvice adds what helps to the whole message of the go command.
func withAdvice(message string) string {
	for _, a := range advices {
		if a.message.MatchString(message) {
			return message + "\n" + a.text
		}
	}
	return message
}
