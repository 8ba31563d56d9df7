package workers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/disruptions"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/exit"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
	"github.com/trommel-dev/trommel/internal/buildcache"
	"github.com/trommel-dev/trommel/internal/buildinfo"
	"github.com/trommel-dev/trommel/internal/fleet"
	"github.com/trommel-dev/trommel/internal/privatedir"
	"github.com/trommel-dev/trommel/internal/progress"
	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/internal/run/builds"
)

// workerOptions are the flags of `trommel worker`.
type workerOptions struct {
	server    string
	tokenFile string
	name      string
	cache     string
	files     string
	dir       string
	patience  time.Duration
	progress  output.Flags
}

// NewCommand returns `trommel worker`.
func NewCommand(s output.Streams) *cobra.Command {
	var o workerOptions
	c := &cobra.Command{
		Use:   "worker --server URL --token-file FILE",
		Short: "Make runs for a campaign on another machine",
		Long: `Worker makes runs for a campaign, on a cluster of its own, until the campaign is over. Start the campaign
with "trommel test --listen". The worker must be the same build of Trommel. It fetches the controllers, the control
plane and the suite with its files from the campaign, unless --files has them. See docs/scale.md.

If you interrupt the worker, it gives its run back, and another worker makes the run.

Exit codes: 0 the campaign is over, 2 usage, 4 the worker was interrupted, the campaign could not be reached, or this
machine cannot make runs, 6 the campaign refused the worker: its token, or its build, is wrong.`,
		Example: `  trommel worker --server https://10.0.0.5:7443 --token-file token`,
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return work(c.Context(), s, &o) },
	}
	f := c.Flags()
	f.StringVar(&o.server, "server", "", "`URL` of the campaign")
	f.StringVar(&o.tokenFile, "token-file", "", "`file` with the campaign's token")
	f.StringVar(&o.name, "name", "", "`name` in messages (default: that of the machine)")
	f.StringVar(&o.cache, "cache", "", "`directory` for what campaigns need (default: in Trommel's cache)")
	f.StringVar(&o.files, "files", "", "`directory` with files that the campaign needs, each named by its "+
		"SHA-256 digest; they must not change, and are not fetched (default: none)")
	f.StringVar(&o.dir, "dir", "", "empty `directory` for files of this worker (default: a temporary one)")
	f.DurationVar(&o.patience, "patience", patience, "`time` in which the campaign must answer again")
	o.progress.Register(f)
	return c
}

// patience is how long a campaign may be away while a worker or a follower waits for it.
const patience = 10 * time.Minute

// readToken reads the token of a campaign. The error is an exit.Error.
func readToken(file string) (string, error) {
	token, err := os.ReadFile(file)
	if err != nil {
		return "", exit.With(exit.Usage, fmt.Errorf("--token-file: %w", err))
	}
	return string(token), nil
}

func work(ctx context.Context, s output.Streams, o *workerOptions) (err error) {
	if o.server == "" || o.tokenFile == "" {
		return exit.With(exit.Usage, errors.New("--server and --token-file are needed"))
	}
	token, err := readToken(o.tokenFile)
	if err != nil {
		return err
	}
	if info, err := os.Stat(o.files); o.files != "" && (err != nil || !info.IsDir()) {
		return exit.With(exit.Usage, fmt.Errorf("--files: %s is not a directory", o.files))
	}
	console, _, err := o.progress.Open(s)
	if err != nil {
		return err
	}
	defer console.Close()
	defer func() {
		switch {
		case errors.Is(err, fleet.ErrRefused):
			err = exit.With(exit.Refused, err)
		case err != nil:
			err = exit.With(exit.CannotRun, err)
		}
	}()
	if o.name == "" {
		o.name, _ = os.Hostname() // without a name it works, too
	}
	if o.cache == "" {
		dir, err := buildcache.Dir()
		if err != nil {
			return err
		}
		o.cache = filepath.Join(dir, "fleet")
	}
	if o.dir == "" {
		var dir *privatedir.Dir
		if dir, err = privatedir.New(""); err != nil {
			return fmt.Errorf("create the worker's directory: %w", err)
		}
		o.dir = dir.Path()
		defer func() { err = errors.Join(err, dir.Remove()) }()
	}
	build, err := buildinfo.Name(buildinfo.Version())
	if err != nil {
		return err
	}
	w := &fleet.Worker{
		Server: o.server, Token: token, Name: o.name, Trommel: build, Cache: o.cache, Dir: o.dir,
		Files: o.files, Patience: o.patience, Say: console.Info,
		Open: func(ctx context.Context, e fleet.Equipment) (fleet.Runner, error) {
			console.Title("worker " + o.name)
			return run.Open(ctx, e.Suite, run.Options{
				Version: buildinfo.Version(), Binaries: e.Binaries, ControlPlane: e.ControlPlane,
				Injector:              disruptions.Injector(),
				Builds:                builds.Known(e.Suite, e.Binaries, e.Builds),
				DisruptionControllers: disruptions.Controllers(), Progress: progress.AsideOf(console),
			})
		},
	}
	err = w.Work(ctx)
	if ctx.Err() != nil {
		err = errors.New("interrupted; its run was given back")
	}
	return err
}
