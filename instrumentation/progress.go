package instrumentation

import (
	"context"
	"fmt"
	"sync"
)

// compiling is held by the build of this process that compiles.
var compiling = make(chan struct{}, 1)

// oneAtATime waits until no other build of this process compiles. A go command keeps all cores busy, and finds what
// others have compiled before. Two at a time would compile each package that both need twice.
func oneAtATime(ctx context.Context) (unlock func(), err error) {
	select {
	case compiling <- struct{}{}:
		return func() { <-compiling }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// known are the packages that builds of this process have compiled.
var known sync.Map

// progress reports what the go command does, in lines for the user.
type progress struct {
	report func(string)

	mu       sync.Mutex
	total    int // packages to compile at most; 0: not known yet
	packages int // compiled
}

func (p *progress) phase(name string) {
	if p.report != nil {
		p.report(name)
	}
}

func (p *progress) downloading(module string) { p.phase("download " + module) }

// needs takes the packages that the build needs. Those that builds of this process have compiled are not compiled
// again, if they are the same. Which others are in the go command's cache is unknown.
func (p *progress) needs(packages []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total = p.packages // which are known now
	for _, name := range packages {
		if _, ok := known.Load(name); !ok {
			p.total++
		}
	}
}

// compiled reports a package and, if it is known, how many there are.
func (p *progress) compiled(pkg string) {
	p.mu.Lock()
	known.Store(pkg, true)
	p.packages++
	of := ""
	if p.total > 0 {
		of = fmt.Sprintf("/%d", max(p.total, p.packages))
	}
	line := fmt.Sprintf("compile %d%s %s", p.packages, of, pkg)
	p.mu.Unlock()
	p.phase(line)
}
