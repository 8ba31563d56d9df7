package scaffold

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// IgnoreFile is the name of git's ignore file.
const IgnoreFile = ".gitignore"

// runs is the pattern of the directory of run records.
const runs = "trommel-runs/"

// Ignore returns the text of the repository's .gitignore with run records added, because these can contain Secrets. It
// is empty if no change is needed.
func Ignore(dir string) (string, error) {
	data, err := os.ReadFile(filepath.Join(dir, IgnoreFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	text := string(data)
	for _, line := range strings.Split(text, "\n") {
		if strings.Trim(strings.TrimSpace(line), "/*") == strings.Trim(runs, "/") {
			return "", nil
		}
	}
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return text + "# Run records can contain Secrets.\n" + runs + "\n", nil
}
