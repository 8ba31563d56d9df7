package scaffold

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
)

// How much it counts where a command was found that installs a path.
const (
	byDocs     = 8
	byMakefile = 12
	byDeploy   = 16 // a Makefile's target `deploy`
)

// installs finds a path in a command that installs it: that of a kustomization, or of a file or directory, also by ko,
// which builds the images. Commands may be variables, such as $(KUSTOMIZE).
var installs = []*regexp.Regexp{
	regexp.MustCompile("(?i)kustomize[)}\"']* build (?:--?[a-z-]+(?:=\\S+)? )*([^\\s|;&`]+)"),
	regexp.MustCompile("(?i)(?:kubectl|\\bko)[)}\"']*(?:[^\\n|;&]*?) (?:apply|create|replace)\\b[^\\n|;&]*"),
}

// pathFlag finds the paths in a kubectl command.
var pathFlag = regexp.MustCompile("\\s(?:-k|--kustomize|-f|--filename)(?: +|=)([^\\s|;&`]+)")

// target is the head of a rule in a Makefile.
var target = regexp.MustCompile(`^([A-Za-z0-9_./-]+)(?:\s+[A-Za-z0-9_./-]+)*\s*:([^=]|$)`)

// findDeployed returns the paths that the Makefile and the README install by kustomize or kubectl, and how much that
// counts.
func findDeployed(dir string) map[string]int {
	found := map[string]int{}
	for _, name := range []string{"Makefile", "README.md", "README.rst", "docs/README.md", "docs/quickstart.md",
		"docs/installation.md", "docs/install.md", "DEVELOPMENT.md", "CONTRIBUTING.md"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			continue
		}
		weight := byDocs
		for _, line := range strings.Split(strings.ReplaceAll(string(text), "\\\n", " "), "\n") {
			if name == "Makefile" {
				if m := target.FindStringSubmatch(line); m != nil {
					if weight = byMakefile; m[1] == "deploy" {
						weight = byDeploy
					}
				}
			}
			for _, at := range installed(line) {
				if at = inRepository(dir, at); at != "" {
					found[at] = max(found[at], weight)
				}
			}
		}
	}
	return found
}

// installed returns the paths that the commands in a line install.
func installed(line string) (paths []string) {
	if strings.Contains(line, " delete ") {
		return nil
	}
	for _, m := range installs[0].FindAllStringSubmatch(line, -1) {
		paths = append(paths, m[1])
	}
	for _, command := range installs[1].FindAllString(line, -1) {
		for _, m := range pathFlag.FindAllStringSubmatch(command, -1) {
			paths = append(paths, strings.Split(m[1], ",")...)
		}
	}
	return paths
}

// inRepository returns the path in the repository that a command's path names, with slashes; it is empty if there is
// none. Of a URL its end counts: READMEs name files of the published repository.
func inRepository(dir, at string) string {
	at = strings.Trim(at, `"'`)
	at, _, _ = strings.Cut(at, "?")
	isURL := strings.Contains(at, "://") || strings.HasPrefix(at, "github.com/") || strings.HasPrefix(at, "git@")
	if _, after, ok := strings.Cut(at, "://"); ok {
		at = after
	}
	if strings.ContainsAny(at, "$<>*") || path.IsAbs(at) {
		return ""
	}
	for {
		if isURL { // the host, the owner and so on
			var ok bool
			if _, at, ok = strings.Cut(at, "/"); !ok {
				return ""
			}
		}
		clean := path.Clean(at)
		if clean == "." || strings.HasPrefix(clean, "..") {
			return ""
		}
		if _, err := os.Stat(filepath.Join(dir, clean)); err == nil {
			return clean
		}
		if !isURL {
			return ""
		}
	}
}
