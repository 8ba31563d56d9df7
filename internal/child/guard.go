package child

import (
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// guardScript reads which process groups exist. Its input ends when this process ends; then it kills the remaining
// groups. This process may have been killed before it reported a new group. So the script also kills every process
// that has the mark in its environment, until there is none, unless it received the command to end. This needs /proc.
const guardScript = `
trap "" HUP INT TERM
groups=" "
while read -r op pid; do
	case $op in
	+) groups="$groups$pid " ;;
	-) groups="${groups%% $pid *} ${groups#* $pid }" ;;
	end) exit ;;
	esac
done
for pid in $groups; do kill -KILL "-$pid"; done
for round in 1 2 3 4 5 6 7 8 9 10; do
	found=$(grep -lsF -e "$1" /proc/[0-9]*/environ)
	[ -n "$found" ] || exit
	for file in $found; do
		pid=${file#/proc/}
		kill -KILL "${pid%/environ}"
	done
done
`

// envMark is in the environment of all children, with a value that no other spawner has.
const envMark = "TROMMEL_CHILD_OF"

type guard struct {
	sh   *exec.Cmd // nil: none is needed
	in   io.WriteCloser
	mark string // for the environment of children
}

func newGuard() (*guard, error) {
	mark := envMark + "=" + rand.Text()
	g := &guard{mark: mark}
	if os.Getpid() == 1 {
		// The first process of a container, which may have no shell. When it ends, the kernel kills all others.
		return g, nil
	}
	g.sh = exec.Command("/bin/sh", "-c", guardScript, "trommel-guard", mark)
	g.sh.Dir = "/"
	g.sh.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var err error
	if g.in, err = g.sh.StdinPipe(); err != nil {
		return nil, err
	}
	if err := g.sh.Start(); err != nil {
		return nil, err
	}
	return g, nil
}

// tell adds ("+") or removes ("-") a group. If someone has killed the guard, only the kernel's signal remains.
func (g *guard) tell(op string, group int) {
	if g.sh == nil {
		return
	}
	_, _ = fmt.Fprintln(g.in, op, group)
}

// close ends the guard, which has no groups any more.
func (g *guard) close() {
	if g.sh == nil {
		return
	}
	_, _ = fmt.Fprintln(g.in, "end")
	_ = g.in.Close()
	_ = g.sh.Wait()
}
