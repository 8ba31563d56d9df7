package scaffold

import (
	"cmp"
	"encoding/json"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ImageFile is what an image has that is also in the repository.
type ImageFile struct {
	In   string // the path in the image
	From string // a file or directory of the repository
}

// findImageFiles lists what the image of a program has besides the program, as its Dockerfile says.
func findImageFiles(dir string, of program) ([]ImageFile, error) {
	var names []string
	err := walk(dir, func(file string) error {
		if base := path.Base(file); strings.Contains(base, "Dockerfile") || strings.Contains(base, "Containerfile") {
			names = append(names, file)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(strings.Count(a, "/")-strings.Count(b, "/"), len(a)-len(b), strings.Compare(a, b))
	})
	for _, name := range names {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}
		d := readDockerfile(os.DirFS(dir), path.Dir(name), string(text))
		if final := d.runs(of); final != nil {
			return d.useful(final, of), nil
		}
	}
	return nil, nil
}

// dockerfile is what a Dockerfile says about the files of its stages.
type dockerfile struct {
	repository fs.FS
	dir        string // of the file in the repository
	stages     []*dockerStage
	variables  map[string]string
}

// dockerStage is a stage: what it has of the repository, and the words that its instructions name programs by.
type dockerStage struct {
	name    string
	workDir string
	files   []ImageFile
	words   []string
}

// readDockerfile reads a Dockerfile. It leaves out what it does not understand.
func readDockerfile(repository fs.FS, dir, text string) *dockerfile {
	d := &dockerfile{repository: repository, dir: dir, variables: map[string]string{}}
	var lines []string
	for _, line := range strings.Split(text, "\n") {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			lines = append(lines, strings.TrimSuffix(line, "\r"))
		}
	}
	for _, line := range strings.Split(strings.ReplaceAll(strings.Join(lines, "\n"), "\\\n", " "), "\n") {
		if words := strings.Fields(line); len(words) > 1 {
			d.add(strings.ToUpper(words[0]), words[1:])
		}
	}
	return d
}

func (d *dockerfile) add(instruction string, words []string) {
	if instruction == "FROM" {
		words, _ = copyOptions(words)
		if len(words) == 0 {
			return
		}
		s := &dockerStage{workDir: "/"}
		if base := d.stage(words[0]); base != nil {
			s.workDir, s.files, s.words = base.workDir, slices.Clone(base.files), slices.Clone(base.words)
		}
		if len(words) > 2 {
			s.name = words[2] // FROM image AS name
		}
		d.stages = append(d.stages, s)
		return
	}
	if instruction == "ARG" || instruction == "ENV" {
		d.set(instruction, words)
		return
	}
	if len(d.stages) == 0 {
		return
	}
	s := d.stages[len(d.stages)-1]
	switch instruction {
	case "WORKDIR":
		if dir, ok := d.expand(words[0]); ok {
			s.workDir = inDir(s.workDir, dir)
		}
	case "ENTRYPOINT", "CMD":
		s.words = append(s.words, copyWords(words)...)
	case "COPY", "ADD":
		words, flags := copyOptions(words)
		if words = copyWords(words); len(words) < 2 || strings.Contains(words[0], "<<") {
			return
		}
		s.words = append(s.words, words...)
		to, ok := d.expand(words[len(words)-1])
		if !ok {
			return
		}
		from, hasFrom := flags["--from"]
		for _, source := range words[:len(words)-1] {
			if source, ok = d.expand(source); !ok || strings.Contains(source, "://") {
				continue
			}
			if base := path.Base(source); strings.Trim(base, "*") != base && base != ".*" {
				source = path.Dir(source) // it has some more, perhaps
			}
			if hasFrom {
				source, ok = d.of(d.stage(from), source)
			} else {
				source, ok = d.inContext(source)
			}
			if ok {
				s.put(d.repository, source, to, len(words) > 2)
			}
		}
	}
}

// set sets what a variable is by default.
func (d *dockerfile) set(instruction string, words []string) {
	for i, word := range words {
		name, value, ok := strings.Cut(word, "=")
		if !ok && instruction == "ENV" && i == 0 && len(words) == 2 {
			value, ok = words[1], true // the older form
		}
		if !ok {
			continue
		}
		if value, known := d.expand(strings.Trim(value, `"'`)); known {
			d.variables[name] = value
		}
	}
}

// expand replaces variables; false: one of them is not known.
func (d *dockerfile) expand(text string) (string, bool) {
	ok := true
	return os.Expand(text, func(name string) string {
		name, fallback, _ := strings.Cut(name, ":-")
		value := cmp.Or(d.variables[name], fallback)
		ok = ok && value != ""
		return value
	}), ok
}

// stage returns a stage by its name or number; nil: it is another image.
func (d *dockerfile) stage(name string) *dockerStage {
	if number, err := strconv.Atoi(name); err == nil && number >= 0 && number < len(d.stages) {
		return d.stages[number]
	}
	i := slices.IndexFunc(d.stages, func(s *dockerStage) bool {
		return s.name != "" && strings.EqualFold(s.name, name)
	})
	if i < 0 {
		return nil
	}
	return d.stages[i]
}

// of returns where the repository has what a stage has at a path.
func (d *dockerfile) of(s *dockerStage, at string) (string, bool) {
	if s == nil {
		return "", false
	}
	at = inDir("/", at)
	for _, f := range slices.Backward(s.files) {
		if rest, ok := strings.CutPrefix(at, strings.TrimSuffix(f.In, "/")); ok && (rest == "" || rest[0] == '/') {
			from := path.Join(f.From, rest)
			if _, err := fs.Stat(d.repository, from); err == nil {
				return from, true
			}
		}
	}
	return "", false
}

// inContext returns where the repository has a source. The directory that an image is built in is the repository's or
// the Dockerfile's.
func (d *dockerfile) inContext(source string) (string, bool) {
	for _, dir := range []string{".", d.dir} {
		at := path.Join(dir, strings.TrimPrefix(source, "/"))
		if _, err := fs.Stat(d.repository, at); err == nil {
			return at, true
		}
	}
	return "", false
}

// put adds what a COPY does. Several: there are several sources.
func (s *dockerStage) put(repository fs.FS, from, to string, several bool) {
	in := inDir(s.workDir, to)
	info, err := fs.Stat(repository, from)
	if err != nil {
		return
	}
	if !info.IsDir() && (several || strings.HasSuffix(to, "/") || path.Base(to) == "." || in == s.workDir) {
		in = path.Join(in, path.Base(from))
	}
	s.files = append(s.files, ImageFile{in, from})
}

// runs returns the last stage that runs the program; nil: none does.
func (d *dockerfile) runs(of program) *dockerStage {
	names := []string{of.binary}
	if base := path.Base(of.pkg); base != "cmd" && base != "." {
		names = append(names, base)
	}
	for _, s := range slices.Backward(d.stages) {
		if slices.ContainsFunc(s.words, func(word string) bool {
			return slices.Contains(names, path.Base(word)) || path.Base(word) == "manager" && len(d.stages) > 1
		}) {
			return s
		}
	}
	return nil
}

// Where images have what their system has, and what programs do not read.
var (
	systemPaths = regexp.MustCompile(
		`^/$|^/(usr|var|run|etc|opt|home|root)$|^/(bin|sbin|lib|lib64|tmp|proc|sys|dev|licenses)(/|$)|` +
			`^/usr/(local/)?(s?bin|lib|lib64)(/|$)|^/etc/(ssl|pki|passwd|group|nsswitch.conf)(/|$)`)
	forPeople = regexp.MustCompile(
		`(?i)^(license|licence|notice|readme|changelog|copying)|\.(md|sh|go)$|^go\.(mod|sum|work)`)
)

// useful returns what of a stage's files the program may read: neither programs nor their source.
func (d *dockerfile) useful(s *dockerStage, of program) []ImageFile {
	found := map[string]string{}
	for _, f := range s.files {
		list := []ImageFile{f}
		if info, err := fs.Stat(d.repository, f.From); err == nil && info.IsDir() && f.In == "/" && f.From != "." {
			entries, _ := fs.ReadDir(d.repository, f.From) // of what has just been found
			list = nil
			for _, e := range entries {
				list = append(list, ImageFile{path.Join("/", e.Name()), path.Join(f.From, e.Name())})
			}
		}
		for _, f := range list {
			if path.Base(f.In) != of.binary && !systemPaths.MatchString(f.In) && d.isData(f.From) {
				found[f.In] = f.From // of several, the last
			}
		}
	}
	var all []ImageFile
	for in, from := range found {
		all = append(all, ImageFile{in, from})
	}
	slices.SortFunc(all, func(a, b ImageFile) int { return strings.Compare(a.In, b.In) })
	return all
}

// isData reports whether a file or directory of the repository is what a program may read.
func (d *dockerfile) isData(name string) bool {
	if name == "." || forPeople.MatchString(path.Base(name)) {
		return false
	}
	data, some := true, false
	err := fs.WalkDir(d.repository, name, func(at string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		some = true
		if path.Ext(at) == ".go" || at == name && info.Mode()&0o111 != 0 {
			data = false
			return fs.SkipAll
		}
		return nil
	})
	return err == nil && data && some
}

// inDir returns a path that may be relative to a directory.
func inDir(dir, to string) string {
	if path.IsAbs(to) {
		return path.Clean(to)
	}
	return path.Join(dir, to)
}

// copyOptions splits off the options before an instruction's words.
func copyOptions(words []string) (rest []string, flags map[string]string) {
	flags = map[string]string{}
	for len(words) > 0 && strings.HasPrefix(words[0], "--") {
		name, value, _ := strings.Cut(words[0], "=")
		flags[name] = value
		words = words[1:]
	}
	return words, flags
}

// copyWords returns the words of an instruction, which may be a list in JSON.
func copyWords(words []string) (all []string) {
	if text := strings.Join(words, " "); json.Unmarshal([]byte(text), &all) == nil {
		return all
	}
	for _, word := range words {
		all = append(all, strings.Trim(word, `"'`))
	}
	return all
}
