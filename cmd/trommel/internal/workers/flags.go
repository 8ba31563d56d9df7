// Package workers has the flags of campaigns whose runs are made by workers, and the command of a worker.
package workers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/trommel-dev/trommel/cmd/trommel/internal/exit"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
	"github.com/trommel-dev/trommel/internal/atomicfile"
	"github.com/trommel-dev/trommel/internal/buildinfo"
	"github.com/trommel-dev/trommel/internal/fleet"
	"github.com/trommel-dev/trommel/internal/fleet/image"
	"github.com/trommel-dev/trommel/internal/fleet/kube"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/progress"
	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/record"
)

// Parallel is how many runs go on at a time on other machines, unless --parallel says it.
const Parallel = 8

// Flags are the flags of a campaign whose runs are made by workers.
type Flags struct {
	listen    string
	on        string // kubernetes, or empty: the user starts the workers
	advertise string
	image     string
	push      string // the repository that the image is pushed to; empty: image is there
	DryRun    string
	output    string

	kubeconfig, context, namespace string
	suspend                        bool
	queue                          string
	cpu, memory                    string
	pullSecret                     string

	Attach, tokenFile string

	server *fleet.Server // nil: none
	making *image.Image  // the image that is pushed; nil: none
}

// onKubernetes is the value of --on.
const onKubernetes = "kubernetes"

// FlagNames are the names of the flags.
var FlagNames = []string{
	"listen", "on", "advertise", "image", "push", "pull-secret", "dry-run", "output", "kubeconfig", "context",
	"namespace", "suspend", "queue", "cpu", "memory",
}

// Register adds the flags to a command.
func (o *Flags) Register(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.listen, "listen", "", "have the runs made by workers (trommel worker), which find the campaign at "+
		"this `address` of this machine, such as 10.0.0.5:7443; --parallel says how many at most")
	f.StringVar(&o.on, "on", "", "kubernetes: start the workers as a Job of Kubernetes; needs --listen, and --push or "+
		"--image")
	f.StringVar(&o.image, "image", "", "`name` of the workers' image, with this build of trommel")
	f.StringVar(&o.push, "push", "", "make the workers' image, with this trommel and what the campaign has built, and "+
		"push it to this `repository`, with the credentials of docker login; nodes pull it from there")
	f.StringVar(&o.pullSecret, "pull-secret", "",
		"`name` of the secret with which nodes pull the image (default: none)")
	f.StringVar(&o.advertise, "advertise", "", "`URL` at which workers reach the campaign (default: that of --listen)")
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig `file` of --on kubernetes (default: as kubectl)")
	f.StringVar(&o.context, "context", "", "`name` of a context of the kubeconfig (default: its current one)")
	f.StringVarP(&o.namespace, "namespace", "n", "", "`name` of the namespace of the Job (default: the context's)")
	f.BoolVar(&o.suspend, "suspend", false, "create the Job suspended, for a controller that admits it")
	f.StringVar(&o.queue, "queue", "", "`name` of the Job's queue, for Kueue; the Job is created suspended")
	f.StringVar(&o.cpu, "cpu", "", "`quantity` that a worker asks for (default: 1)")
	f.StringVar(&o.memory, "memory", "", "`quantity` that a worker asks for; it may use twice as much (default: 2Gi)")
	f.StringVar(&o.Attach, "attach", "", "show the progress of the campaign whose workers find it at this `URL`, "+
		"from its beginning, and end as it does; Ctrl-C ends only this. Needs --token-file, the file workers/token in "+
		"the campaign's directory")
	f.StringVar(&o.tokenFile, "token-file", "", "`file` with the campaign's token, for --attach")
	f.StringVar(&o.DryRun, "dry-run", "", "client: print what --on kubernetes creates, and run nothing")
	f.StringVarP(&o.output, "output", "o", "", "yaml: the format of --dry-run (default: yaml)")
}

// Used reports whether the runs are made by workers.
func (o *Flags) Used() bool { return o.listen != "" }

// Check finds what is wrong with the flags.
func (o *Flags) Check(f *pflag.FlagSet) error {
	switch {
	case o.Attach != "" || o.tokenFile != "":
		return o.checkAttach(f)
	case o.on != "" && o.on != onKubernetes:
		return fmt.Errorf("--on %q: the only value is kubernetes", o.on)
	case o.on != "" && (o.listen == "" || o.image == "" && o.push == ""):
		return errors.New("--on kubernetes needs --listen, where workers find this campaign, and --push or --image")
	case o.push != "" && o.image != "":
		return errors.New("--push makes the workers' image: leave --image out")
	case o.push != "" && o.DryRun != "":
		return errors.New("--push pushes what a campaign has built, and --dry-run builds nothing: create the Job " +
			"with --suspend, for a controller that admits it")
	case o.DryRun != "" && o.DryRun != "client":
		return fmt.Errorf("--dry-run=%s: the only value is client", o.DryRun)
	case o.output != "" && (o.output != "yaml" || o.DryRun == ""):
		return errors.New("--output yaml is the only format, and only for --dry-run")
	}
	if o.on != "" {
		if o.push != "" {
			if err := image.Check(o.push); err != nil {
				return fmt.Errorf("--push: %w", err)
			}
		}
		return nil
	}
	for _, name := range FlagNames {
		if name != "listen" && f.Changed(name) {
			return fmt.Errorf("--%s is for --on kubernetes", name)
		}
	}
	return nil
}

// checkAttach finds mistakes in the flags that go with --attach.
func (o *Flags) checkAttach(f *pflag.FlagSet) (err error) {
	if o.Attach == "" || o.tokenFile == "" {
		return errors.New("--attach and --token-file need each other")
	}
	f.Visit(func(flag *pflag.Flag) {
		switch {
		case flag.Name == "attach", flag.Name == "token-file", slices.Contains(output.FlagNames, flag.Name), err != nil:
		default:
			err = fmt.Errorf("--attach only shows a campaign: leave --%s out", flag.Name)
		}
	})
	return err
}

// Dir is the directory of a campaign with what is between it and its workers.
const Dir = "workers"

// Serve returns runners that have their runs made by workers, and starts these if it is to. The caller calls end when
// the campaign has ended; if ctx has not, the workers are informed of it.
func (o *Flags) Serve(
	ctx context.Context, console *output.Console, title progress.Event, source fleet.Source, dir string, parallel int,
) (runners []run.Runner, end func(), err error) {
	build, err := buildinfo.Name(buildinfo.Version())
	if err != nil {
		return nil, nil, err
	}
	say := func(text string) {
		o.Listener(console).Show(progress.Event{Time: time.Now(), Type: progress.Info, Text: text})
	}
	server, err := fleet.Serve(fleet.Config{
		Address: o.listen, Dir: filepath.Join(dir, Dir), Source: source, Trommel: build, Say: say,
	})
	if err != nil {
		return nil, nil, err
	}
	o.server = server
	server.Show(title)
	remove := func() {}
	end = func() {
		if ctx.Err() == nil {
			server.Ended(fleet.End{Code: exit.CannotRun}) // unless it has ended better
		}
		if err := server.Close(ctx.Err() == nil); err != nil {
			say(err.Error())
		}
		remove()
		say(server.Counts().String())
	}
	token, err := server.Token()
	file := filepath.Join(dir, Dir, "token")
	if err == nil {
		err = atomicfile.Write(file, []byte(token+"\n"), record.FileMode)
	}
	if err == nil && o.on == "" {
		say(fmt.Sprintf("waiting for workers: trommel worker --server https://%s --token-file %s", server.Address(),
			file))
	} else if err == nil {
		if err = o.complete(ctx, say); err == nil {
			remove, err = o.start(ctx, say, dir, server.Address(), token, parallel)
		}
	}
	if err != nil {
		end()
		return nil, nil, err
	}
	for i := range parallel {
		runners = append(runners, server.Runner(i+1))
	}
	return runners, end, nil
}

// Begin pushes of the image that --push asks for what is there before anything is built. So a registry that takes
// nothing is found soon.
func (o *Flags) Begin(ctx context.Context, say func(string)) (err error) {
	if o.push == "" {
		return nil
	}
	say("pushing trommel to " + o.push)
	if o.making, err = image.New(ctx, o.push); err != nil {
		return err
	}
	return o.making.AddExecutable(ctx)
}

// complete pushes the rest of the image, if --push asks for one. What changes least comes first.
func (o *Flags) complete(ctx context.Context, say func(string)) error {
	if o.making == nil {
		return nil
	}
	controlPlane, controllers, rest := o.server.Contents()
	for _, c := range controllers {
		if err := image.Static(c.File); err != nil {
			return fmt.Errorf("the controller %s cannot be in an image: %w; build it with CGO_ENABLED=0", c.File, err)
		}
	}
	for _, contents := range [][]fleet.Content{controlPlane, controllers, rest} {
		var files []image.File
		for _, c := range contents {
			files = append(files, image.File{Path: path.Join(image.FilesDir, c.Digest), Local: c.File, Data: c.Data})
		}
		if err := o.making.Add(ctx, files...); err != nil {
			return err
		}
	}
	var err error
	if o.image, err = o.making.Name(ctx); err == nil {
		say(fmt.Sprintf("pushed %s: %s", o.image, o.making.Sent()))
	}
	return err
}

// Listener returns a listener that, if there are workers, also passes events to those that follow the campaign from
// elsewhere.
func (o *Flags) Listener(l progress.Listener) progress.Listener {
	if o.server == nil {
		return l
	}
	return progress.Func(func(e progress.Event) {
		l.Show(e)
		o.server.Show(e)
	})
}

// Ended informs those that follow the campaign from elsewhere how it has ended.
func (o *Flags) Ended(summary string, code int) {
	if o.server != nil {
		o.server.Ended(fleet.End{Summary: summary, Code: code})
	}
}

// Follow shows the events of a campaign that runs elsewhere, and ends as it does. The error is an exit.Error.
func (o *Flags) Follow(ctx context.Context, s output.Streams, show *output.Flags) error {
	token, err := readToken(o.tokenFile)
	if err != nil {
		return err
	}
	console, s, err := show.Open(s)
	if err != nil {
		return err
	}
	defer console.Close()
	end, err := fleet.Attach(ctx, o.Attach, token, patience, console, console.Info)
	switch {
	case ctx.Err() != nil:
		return exit.With(exit.Inconclusive, errors.New("detached; the campaign goes on"))
	case err != nil:
		return exit.With(exit.CannotRun, err)
	}
	if _, err := io.WriteString(s.Out, end.Summary); err != nil {
		return exit.With(exit.CannotRun, err)
	}
	if end.Code != exit.Pass {
		return exit.With(end.Code, nil)
	}
	return nil
}

// kubeConfig describes the workers of a campaign that listens at an address.
func (o *Flags) kubeConfig(dir, address, token string, workers int) (c kube.Config, err error) {
	c = kube.Config{
		Name: kube.Name(filepath.Base(dir)), Image: o.image, Server: o.advertise, Token: token, Workers: workers,
		Suspend: o.suspend || o.queue != "", CPU: o.cpu, Memory: o.memory, PullSecret: o.pullSecret,
	}
	if o.making != nil {
		c.Files, c.Arch = image.FilesDir, image.Arch
	}
	if o.queue != "" {
		c.Labels = map[string]string{kube.QueueLabel: o.queue}
	}
	if c.Server == "" {
		if c.Server, err = kube.Server(address); err != nil {
			return c, err
		}
	}
	c.Namespace, _, err = o.clientConfig().Namespace()
	if clientcmd.IsEmptyConfig(err) { // manifests can be printed anywhere
		err = nil
	}
	c.Namespace = cmp.Or(o.namespace, c.Namespace, "default")
	return c, err
}

func (o *Flags) clientConfig() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: o.context})
}

// Print writes what --on kubernetes creates. The campaign of the directory that is started later has the same token.
func (o *Flags) Print(s output.Streams, dir string, workers int) error {
	token, err := fleet.Token(filepath.Join(dir, Dir))
	if err != nil {
		return err
	}
	c, err := o.kubeConfig(dir, o.listen, token, workers)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	list, err := kube.Objects(c)
	if err != nil {
		return exit.With(exit.Usage, err)
	}
	data, err := kube.YAML(list)
	if err != nil {
		return err
	}
	_, err = s.Out.Write(data)
	return err
}

// start creates the workers. Remove deletes what is left of them.
func (o *Flags) start(
	ctx context.Context, say func(string), dir, address, token string, workers int,
) (remove func(), err error) {
	c, err := o.kubeConfig(dir, address, token, workers)
	if err != nil {
		return nil, err
	}
	config, err := o.clientConfig().ClientConfig()
	if err != nil {
		return nil, err
	}
	client, err := objects.New(config)
	if err != nil {
		return nil, err
	}
	if remove, err = kube.Create(ctx, client, c, say); err != nil {
		return nil, err
	}
	say(fmt.Sprintf("the workers are the pods of the Job %s/%s", c.Namespace, c.Name))
	return remove, nil
}
