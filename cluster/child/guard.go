package child

import (
	"fmt"
	"io"
	"os/exec"
	"syscall"
)

// guardScript reads which groups there are. Its input ends with this process; what is then left, it kills.
const guardScript = `
trap "" HUP INT TERM
groups=" "
while read -r op pid; do
	case $op in
	+) groups="$groups$pid " ;;
	-) groups="${groups%% $pid *} ${groups#* $pid }" ;;
	esac
done
for pid in $groups; do kill -KILL "-$pid"; done
`

type guard struct {
	sh *exec.Cmd
	in io.WriteCloser
}

func newGuard() (*guard, error) {
	g := &guard{sh: exec.Command("/bin/sh", "-c", guardScript, "trommel-guard")}
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

// tell adds ("+") or removes ("-") a group. Without the guard, which can only be gone because somebody killed it, the
// kernel's signal has to do.
func (g *guard) tell(op string, group int) {
	_, _ = fmt.Fprintln(g.in, op, group)
}

// close ends the guard, which knows of no group any more.
func (g *guard) close() {
	_ = g.in.Close()
	_ = g.sh.Wait()
}
