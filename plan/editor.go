package plan

import (
	"fmt"

	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"
)

// EditorLine is the first line of a file with which editors complete and check it, for a file that Trommel of this
// version writes: a comment with the URL of the schema. The kind is TestPlan or Suite. A schema beside the file would
// be one more file to commit, and out of date after the next upgrade.
func EditorLine(kind, trommel string) string {
	name := "plan"
	if kind == "Suite" {
		name = "suite"
	}
	at := trommel
	if !semver.IsValid(trommel) || module.IsPseudoVersion(trommel) || semver.Build(trommel) != "" {
		at = "main" // it was built from a source that has no tag
	}
	return fmt.Sprintf("# yaml-language-server: $schema=https://raw.githubusercontent.com/trommel-dev/trommel/%s/plan/"+
		"%s.schema.json\n", at, name)
}
