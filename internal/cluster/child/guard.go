package child

import (
	"fmt"
	"io"
	"os/exec"
	"syscall"
)

// guardScript reads which process groups exist. Its input ends when this process ends; then it kills the remaining
// groups.
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

// tell adds ("+") or removes ("-") a group. If someone has killed the guard, only the kernel's signal remains.
func (g *guard) tell(op string, group int) {
	_, _ = fmt.Fprintln(g.in, op, group)
}

// close ends the guard, which has no groups any more.
func (g *guard) close() {
	_ = g.in.Close()
	_ = g.sh.Wait()
}
