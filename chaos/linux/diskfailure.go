package linux

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/inject"
)

func init() {
	register(v1alpha1.KindDiskFailure, func(base injection, spec v1alpha1.DiskFailure) inject.Injection {
		return &diskFailure{injection: base, spec: spec}
	})
}

// diskFailure answers the kernel's questions whether a container may open or read a file (fanotify). The kernel asks
// about the container's own mounts only. When the injector ends, however that ends, all is allowed again.
type diskFailure struct {
	injection
	spec v1alpha1.DiskFailure

	asked   *questions
	failing []string // paths, as the questions show them
	waiting sync.WaitGroup
}

// diskErrors are the errors that the kernel lets us answer, and those of the API that it does not.
var diskErrors = map[string]unix.Errno{
	"": unix.EIO, "EIO": unix.EIO, "ENOSPC": unix.ENOSPC, "EDQUOT": unix.EDQUOT,
	"EACCES": 0, "EROFS": 0, "ENOENT": 0, "EMFILE": 0,
}

// diskQuestions are what the kernel asks about, for each operation.
var diskQuestions = map[string]uint64{
	"open": unix.FAN_OPEN_PERM | unix.FAN_ONDIR, "read": unix.FAN_ACCESS_PERM | unix.FAN_ONDIR, "write": 0, "sync": 0,
}

// Check implements inject.Injection.
func (i *diskFailure) Check(context.Context) error {
	if err := privileged(); err != nil {
		return err
	}
	if i.request.Target.NodeLevel {
		return inject.Unsupported("diskFailure of a whole node would also affect its kubelet: choose pods")
	}
	number, ok := diskErrors[i.spec.Error]
	switch {
	case !ok:
		return fmt.Errorf("invalid error %q", i.spec.Error)
	case number == 0:
		return inject.Unsupported("the kernel can make operations fail with EIO, ENOSPC or EDQUOT, not with %s",
			i.spec.Error)
	}
	if _, err := i.questions(); err != nil {
		return err
	}
	if err := tryDeny(number); err != nil {
		return inject.Unsupported("this kernel cannot make files fail (it needs fanotify of Linux 6.14): %v", err)
	}
	_, err := i.places(func(*os.File, bool) error { return nil })
	return err
}

// questions returns what the kernel must ask about.
func (i *diskFailure) questions() (uint64, error) {
	var all uint64
	for _, o := range i.spec.Operations {
		asked, ok := diskQuestions[o]
		switch {
		case !ok:
			return 0, fmt.Errorf("invalid operation %q", o)
		case asked == 0:
			return 0, inject.Unsupported("the kernel asks nobody before it carries out %s: choose open or read", o)
		}
		all |= asked
	}
	if all == 0 {
		all = diskQuestions["open"]
	}
	return all, nil
}

// places opens the mounts with the paths in the containers, calls f with each, and returns the paths as our own /proc
// shows them. below: it is a mount below a path.
func (i *diskFailure) places(f func(mount *os.File, below bool) error) ([]string, error) {
	containers, err := i.containers()
	if err != nil {
		return nil, err
	}
	var all []string
	for _, c := range containers {
		for _, path := range i.spec.Paths {
			shown, err := i.node.place(c.init, filepath.Clean(path), f)
			if err != nil {
				return nil, err
			}
			all = append(all, shown...)
		}
	}
	return all, nil
}

// place does so for one path of a process. The path need not exist yet.
func (n Node) place(pid int, path string, f func(mount *os.File, below bool) error) ([]string, error) {
	file, err := n.openIn(pid, path, unix.O_PATH)
	rest := ""
	for at := path; errors.Is(err, unix.ENOENT) && at != "/"; {
		at = filepath.Dir(at)
		rest = strings.TrimPrefix(path, at)
		file, err = n.openIn(pid, at, unix.O_PATH)
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	shown, err := shownPath(int(file.Fd()))
	if err != nil {
		return nil, err
	}
	if err := f(file, false); err != nil {
		return nil, err
	}
	if rest != "" {
		return []string{filepath.Join(shown, rest)}, nil
	}
	root, err := n.openIn(pid, "/", unix.O_PATH)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	above, err := shownPath(int(root.Fd()))
	if err != nil {
		return nil, err
	}
	// The path without links, as the mounts have it.
	path = "/" + strings.TrimPrefix(strings.TrimPrefix(shown, above), "/")
	all := []string{shown}
	mounts, err := os.ReadFile(filepath.Join(n.Proc, strconv.Itoa(pid), "mountinfo"))
	if err != nil {
		return nil, fmt.Errorf("list the target's mounts: %w", err)
	}
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		if len(fields) < 5 || !isBelow(unescape(fields[4]), path) || unescape(fields[4]) == path {
			continue
		}
		shown, err := n.placeBelow(pid, fields[4], f)
		if err != nil {
			return nil, err
		}
		if shown != "" {
			all = append(all, shown)
		}
	}
	return all, nil
}

// placeBelow does so for a mount.
func (n Node) placeBelow(pid int, at string, f func(mount *os.File, below bool) error) (string, error) {
	file, err := n.openIn(pid, unescape(at), unix.O_PATH)
	if errors.Is(err, unix.ENOENT) {
		return "", nil // another mount hides it
	}
	if err != nil {
		return "", err
	}
	defer file.Close()
	if err := f(file, true); err != nil {
		return "", err
	}
	return shownPath(int(file.Fd()))
}

// unescape reads a path of /proc/PID/mountinfo.
func unescape(path string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(path)
}

// shownPath is the path of an open file as our own /proc shows it.
func shownPath(fd int) (string, error) {
	path, err := os.Readlink(filepath.Join("/proc/self/fd", strconv.Itoa(fd)))
	if err != nil {
		return "", fmt.Errorf("find the path of a file: %w", err)
	}
	return path, nil
}

// isBelow reports whether a path is a directory or below it.
func isBelow(path, dir string) bool {
	return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/")
}

// questions are those of the kernel.
type questions struct {
	*os.File
	fd int // File.Fd would let reads wait in the kernel, where closing the file does not end them
}

// openQuestions opens a file of the kernel's questions. Only a group that is asked before the content is there may
// choose the error.
func openQuestions() (*questions, error) {
	fd, err := unix.FanotifyInit(unix.FAN_CLASS_PRE_CONTENT|unix.FAN_CLOEXEC|unix.FAN_NONBLOCK|
		unix.FAN_UNLIMITED_QUEUE|unix.FAN_UNLIMITED_MARKS,
		unix.O_RDONLY|unix.O_LARGEFILE|unix.O_CLOEXEC|unix.O_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("open fanotify: %w", err)
	}
	return &questions{os.NewFile(uintptr(fd), "fanotify"), fd}, nil
}

// ask lets the kernel ask about a file, or about the mount that it is in.
func (q *questions) ask(flags uint, mask uint64, about *os.File) error {
	path := filepath.Join("/proc/self/fd", strconv.Itoa(int(about.Fd())))
	err := unix.FanotifyMark(q.fd, unix.FAN_MARK_ADD|flags, mask, unix.AT_FDCWD, path)
	if err != nil {
		return fmt.Errorf("let fanotify ask about %s: %w", about.Name(), err)
	}
	return nil
}

// errnoShift is where an answer has its error.
const errnoShift = 24

// answer answers until the file is closed. fails says whether the file with an open descriptor fails.
func (q *questions) answer(number unix.Errno, fails func(fd int) bool) error {
	buffer := make([]byte, 4096)
	size := int(unsafe.Sizeof(unix.FanotifyEventMetadata{}))
	var failed error
	for {
		n, err := q.Read(buffer)
		if errors.Is(err, os.ErrClosed) {
			return failed
		}
		if err != nil {
			continue // the kernel could not open a file for us, and has refused it
		}
		for at := buffer[:n]; len(at) >= size; {
			length := binary.NativeEndian.Uint32(at)
			fd := int32(binary.NativeEndian.Uint32(at[16:]))
			if fd >= 0 {
				answer := uint32(unix.FAN_ALLOW)
				if fails(int(fd)) {
					answer = unix.FAN_DENY | uint32(number)<<errnoShift
				}
				if err := q.reply(fd, answer); err != nil {
					failed = err
					_ = q.reply(fd, unix.FAN_ALLOW)
				}
				_ = unix.Close(int(fd))
			}
			at = at[min(max(int(length), size), len(at)):]
		}
	}
}

func (q *questions) reply(fd int32, answer uint32) error {
	data := binary.NativeEndian.AppendUint32(nil, uint32(fd))
	_, err := q.Write(binary.NativeEndian.AppendUint32(data, answer))
	return err
}

// tryDeny lets the opening of a file in memory fail.
func tryDeny(number unix.Errno) error {
	fd, err := unix.MemfdCreate("trommel", unix.MFD_CLOEXEC)
	if err != nil {
		return err
	}
	file := os.NewFile(uintptr(fd), "memory")
	defer file.Close()
	q, err := openQuestions()
	if err != nil {
		return err
	}
	answered := make(chan error, 1)
	go func() { answered <- q.answer(number, func(int) bool { return true }) }()
	err = q.ask(0, unix.FAN_OPEN_PERM, file)
	if err == nil {
		again, opened := unix.Open(filepath.Join("/proc/self/fd", strconv.Itoa(fd)), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		switch {
		case opened == nil:
			err = errors.Join(errors.New("the file could be opened"), unix.Close(again))
		case !errors.Is(opened, number):
			err = fmt.Errorf("the error is %w", opened)
		}
	}
	return errors.Join(err, q.Close(), <-answered)
}

// Inject implements inject.Injection.
func (i *diskFailure) Inject(context.Context) error {
	mask, err := i.questions()
	if err != nil {
		return err
	}
	if i.asked, err = openQuestions(); err != nil {
		return err
	}
	// Nothing fails until all is asked about.
	if i.failing, err = i.places(func(*os.File, bool) error { return nil }); err != nil {
		return err
	}
	number := diskErrors[i.spec.Error]
	i.waiting.Go(func() { _ = i.asked.answer(number, i.fails) })
	_, err = i.places(func(mount *os.File, below bool) error {
		err := i.asked.ask(unix.FAN_MARK_MOUNT, mask, mount)
		if below && errors.Is(err, unix.EINVAL) {
			return nil // a file system such as proc, about which the kernel does not ask
		}
		return err
	})
	return err
}

// fails reports whether an open file is one that fails now.
func (i *diskFailure) fails(fd int) bool {
	path, err := shownPath(fd)
	if err != nil || rand.Uint32N(100) >= percent(i.spec.Percentage, 100) {
		return false
	}
	for _, dir := range i.failing {
		if isBelow(path, dir) {
			return true
		}
	}
	return false
}

// Clean implements inject.Injection. What another process has done has ended with it.
func (i *diskFailure) Clean(context.Context) error {
	if i.asked == nil {
		return nil
	}
	err := i.asked.Close()
	i.waiting.Wait()
	i.asked = nil
	return err
}
