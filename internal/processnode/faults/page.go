package faults

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/trommel-dev/trommel/internal/atomicfile"
)

// page is how faults of files and connections reach a container's processes while they run. It is a file that processes
// with hooks map into memory, so that they read a number instead of asking. It has two numbers of 32 bits: the first
// changes with the rules for files, which are in the file next to it, and is 0 without any; the second is 1 while
// connections to pods' own addresses may be disturbed.
type page struct {
	path string

	mu      sync.Mutex
	changes uint32 // of rules
	rules   []*diskRule
}

// pages are those of all containers with hooks on the node.
type pages struct {
	mu      sync.Mutex
	all     map[*page]struct{}
	dialing int // faults because of which programs ask before they connect to a pod's own address
}

// Page returns the path of the file in which the processes of a container with hooks find the page, see page. The first
// call writes it to that path; no process of the container has been started then.
func (p *Pod) Page(container, path string) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if old := p.pages[container]; old != nil {
		return old.path, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	fresh, all := &page{path: path}, &p.set.pages
	all.mu.Lock()
	defer all.mu.Unlock()
	if err := os.WriteFile(path, make([]byte, 8), 0o600); err != nil {
		return "", err
	}
	if all.dialing > 0 {
		if err := fresh.write(1, 1); err != nil {
			return "", err
		}
	}
	all.all[fresh] = struct{}{}
	p.pages[container] = fresh
	return path, nil
}

// page returns the page of a container with hooks that has started.
func (p *Pod) page(c Container) *page {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pages[c.Name()]
}

func (p *Pod) forgetPages() {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := &p.set.pages
	all.mu.Lock()
	defer all.mu.Unlock()
	for _, of := range p.pages {
		delete(all.all, of)
	}
}

// askBeforeDialing makes programs ask before they connect to pods' own addresses, until it is called with -1 as often
// as with 1.
func (s *Set) askBeforeDialing(change int) error {
	s.pages.mu.Lock()
	defer s.pages.mu.Unlock()
	before := s.pages.dialing
	s.pages.dialing += change
	if (before > 0) == (s.pages.dialing > 0) {
		return nil
	}
	var errs []error
	for p := range s.pages.all {
		errs = append(errs, p.write(1, min(uint32(s.pages.dialing), 1)))
	}
	return errors.Join(errs...)
}

// write sets one of the page's numbers. A process sees the old one or the new one.
func (p *page) write(index int, number uint32) error {
	f, err := os.OpenFile(p.path, os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the pod has ended
	}
	if err != nil {
		return err
	}
	_, err = f.WriteAt(binary.NativeEndian.AppendUint32(nil, number), int64(4*index))
	return errors.Join(err, f.Close())
}

func (p *page) rulesFile() string { return p.path + ".rules" }

// change changes the rules for files. They are in effect when it returns. After an error the old ones are. The rules of
// a pod that has ended do not matter.
func (p *page) change(kept []string, change func([]*diskRule) []*diskRule) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	rules := change(slices.Clone(p.rules))
	if _, err := os.Stat(p.path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if len(rules) == 0 {
		p.rules = nil
		err := p.write(0, 0)
		if e := os.Remove(p.rulesFile()); !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
		return err
	}
	var b strings.Builder
	for _, path := range kept {
		fmt.Fprintf(&b, "keep\t%s\n", path)
	}
	for _, r := range rules {
		b.WriteString(r.String())
	}
	if err := atomicfile.Write(p.rulesFile(), []byte(b.String()), 0o600); err != nil {
		return err
	}
	if p.changes++; p.changes == 0 {
		p.changes++ // 0 means that there are none
	}
	if err := p.write(0, p.changes); err != nil {
		return err
	}
	p.rules = rules
	return nil
}
