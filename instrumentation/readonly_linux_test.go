package instrumentation_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trommel-dev/trommel/instrumentation"
)

// TestRepositoryThatCannotBeWritten builds in directories without write permission.
func TestRepositoryThatCannotBeWritten(t *testing.T) {
	r := newRepositories(t)
	dir := repository(t, r.goMod(".", "module example.com/readonly\n\ngo 1.26.0\n"),
		map[string]string{"main.go": smallMain})
	chmod := func(mode os.FileMode) {
		for path := range tree(t, dir) {
			if err := os.Chmod(path, mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	chmod(0o555)
	defer chmod(0o755)
	done := make(chan struct{})
	go func() {
		defer close(done)
		// Root ignores permissions, unless this thread, and with it what it starts, gives that up. The thread ends with
		// the function.
		runtime.LockOSThread()
		if os.Geteuid() == 0 {
			if err := dropOverride(); err != nil {
				t.Errorf("drop capability: %v", err)
				return
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "x"), nil, 0o644); !errors.Is(err, os.ErrPermission) {
			t.Errorf("the test can write into the repository: %v", err)
		}
		r.mustPrint(t, dir, instrumentation.BuildConfig{Dir: dir}, "small 0 true")
	}()
	<-done
}

func dropOverride() error {
	for _, c := range []uintptr{unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH} {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			return err
		}
	}
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&header, &data[0]); err != nil {
		return err
	}
	data[0].Effective &^= 1<<unix.CAP_DAC_OVERRIDE | 1<<unix.CAP_DAC_READ_SEARCH
	data[0].Permitted = data[0].Effective
	return unix.Capset(&header, &data[0])
}
