package processnode

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

// newPage writes the page of a container that has not started yet.
func (n *Node) newPage(path string) (*page, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	p := &page{path: path}
	n.pages.mu.Lock()
	defer n.pages.mu.Unlock()
	if err := os.WriteFile(path, make([]byte, 8), 0o600); err != nil {
		return nil, err
	}
	if n.pages.dialing > 0 {
		if err := p.write(1, 1); err != nil {
			return nil, err
		}
	}
	n.pages.all[p] = struct{}{}
	return p, nil
}

func (n *Node) forgetPage(p *page) {
	n.pages.mu.Lock()
	defer n.pages.mu.Unlock()
	delete(n.pages.all, p)
}

// askBeforeDialing makes programs ask before they connect to pods' own addresses, until it is called
// with -1 as often as with 1.
func (n *Node) askBeforeDialing(change int) error {
	n.pages.mu.Lock()
	defer n.pages.mu.Unlock()
	before := n.pages.dialing
	n.pages.dialing += change
	if (before > 0) == (n.pages.dialing > 0) {
		return nil
	}
	var errs []error
	for p := range n.pages.all {
		errs = append(errs, p.write(1, min(uint32(n.pages.dialing), 1)))
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
	fresh := p.rulesFile() + ".new"
	if err := os.WriteFile(fresh, []byte(b.String()), 0o600); err != nil {
		return err
	}
	if err := os.Rename(fresh, p.rulesFile()); err != nil {
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
