package exits

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/trommel-dev/trommel/internal/processnode/volumes"
)

// missing finds an absolute path that a program has not found, and the word before it. A program that it cannot start
// is another matter: the files of a suite are for programs that Trommel has built.
var missing = regexp.MustCompile(`(?m)(?:^|(\S*)[\s"'=(])(/[^\s:"'\\]+)\\?["']?: no such file or directory`)

// explainImage is for a controller that says at its end that a file does not exist, which neither a volume of its pod
// nor this machine has at that path. Then its image has the file, or it is a mistake that the image has, too.
func explainImage(controller, log string, files *volumes.Files) string {
	for _, m := range slices.Backward(missing.FindAllStringSubmatch(end(log), -1)) {
		path := filepath.Clean(m[2])
		if m[1] == "fork/exec" || files.Have(path) || exists(path) {
			continue
		}
		what, give := "FILE OR DIRECTORY", path
		for dir := filepath.Dir(path); dir != "/" && !files.Have(dir) && !exists(dir); dir = filepath.Dir(dir) {
			what, give = "DIRECTORY", dir
		}
		return fmt.Sprintf("%s looks for %s, which neither this machine nor a volume of its pod has. If its image "+
			"has it, add to the controller in the suite: files: {%s: %s}", controller, path, give, what)
	}
	return ""
}

// end is where a log says why its process has ended: the last lines, and those before the goroutines of a panic.
func end(log string) string {
	log, _, _ = strings.Cut(log, "\ngoroutine ")
	lines := strings.Split(strings.TrimRight(log, "\n"), "\n")
	return strings.Join(lines[max(len(lines)-lastLines, 0):], "\n")
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
