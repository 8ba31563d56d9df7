// Package cycle has the command that replaces the nodes of node groups.
package cycle

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/exit"
	"github.com/trommel-dev/trommel/cmd/trommel/internal/output"
	"github.com/trommel-dev/trommel/internal/objects"
	"github.com/trommel-dev/trommel/internal/progress"
	nodes "github.com/trommel-dev/trommel/nodes/api/v1alpha1"
	"github.com/trommel-dev/trommel/nodes/controller"
	"github.com/trommel-dev/trommel/nodes/simulated"
	"github.com/trommel-dev/trommel/plan"
)

type cycleOptions struct {
	kubeconfig, context, namespace string

	name           string
	selector       string
	nodes          []string
	skipMissing    bool
	method         string
	concurrency    int64
	timeout        time.Duration
	labelsToRemove []string
	force          bool
	emptyDirData   bool
	restore        bool
	resume         string

	wait   bool
	dryRun bool
	output string

	progress output.Flags
}

// NewCommand returns `trommel cycle`.
func NewCommand(s output.Streams) *cobra.Command {
	o := cycleOptions{}
	cmd := &cobra.Command{
		Use:   "cycle GROUP [GROUP...] | cycle --resume REQUEST",
		Short: "Replace the nodes of a group, some at a time",
		Long: "Cycle makes a CycleNodeRequest for one or more node groups and follows it until all their nodes are " +
			`replaced.
The cluster needs the controllers of node cycling: see docs/node-cycling.md. Ctrl-C asks whether the request stays;
without a terminal it does.

A request that fails leaves its groups larger, with the old nodes beside the new ones. --restore removes the new ones
again, as far as their pods have room elsewhere; --resume makes another request like it, for the nodes that are left.

Exit codes: 0 all nodes are replaced, 1 the request has failed, 2 usage, 3 the request goes on or was deleted,
4 could not run, 5 there is no such node group.`,
		Example: `  trommel cycle workers -l pool=workers
  trommel cycle workers -l pool=workers --concurrency 2 --node worker-3 --node worker-4
  trommel cycle workers -l pool=workers --dry-run -o yaml
  trommel cycle workers-a workers-b -l pool=workers --method Wait --wait=false
  trommel cycle workers -l pool=workers --restore
  trommel cycle --resume workers-x7k2p`,
		Args: func(cmd *cobra.Command, args []string) error {
			if o.resume != "" {
				return cobra.NoArgs(cmd, args)
			}
			return cobra.MinimumNArgs(1)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, groups []string) error { return o.run(cmd.Context(), s, groups) },
	}
	f := cmd.Flags()
	f.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig `file` (default: as kubectl)")
	f.StringVar(&o.context, "context", "", "`name` of a context of the kubeconfig (default: its current one)")
	f.StringVarP(&o.namespace, "namespace", "n", "", "`namespace` of the request (default: the context's)")
	f.StringVar(&o.name, "name", "", "`name` of the request (default: the group's name with a suffix)")
	f.StringVarP(&o.selector, "selector", "l", "",
		"`labels` of the groups' nodes, such as pool=workers (default: those of a simulated node group)")
	f.StringSliceVar(&o.nodes, "node", nil, "replace only the node of this `name` (may be repeated)")
	f.BoolVar(&o.skipMissing, "skip-missing-nodes", false, "ignore names of --node that are not in the groups")
	f.StringVar(&o.method, "method", string(nodes.MethodDrain), "Drain evicts pods, Wait waits until they have ended")
	f.Int64Var(&o.concurrency, "concurrency", 1, "how many nodes are replaced at a time; 0: all")
	f.DurationVar(&o.timeout, "cycling-timeout", 0,
		"limit for waiting and draining of one node (default: the controllers', 3h)")
	f.StringSliceVar(&o.labelsToRemove, "remove-label", nil,
		"`key` of a label that is removed from pods before they are evicted (may be repeated)")
	f.BoolVar(&o.force, "force", false, "evict also pods without a controller, which nothing makes again")
	f.BoolVar(&o.emptyDirData, "delete-emptydir-data", false,
		"evict also pods that use emptyDir volumes, whose data is lost")
	f.BoolVar(&o.restore, "restore", false,
		"remove nodes that were started for requests that failed, until the groups are as large as before")
	f.StringVar(&o.resume, "resume", "",
		"make a request like the failed `request`, for those of its nodes that are not replaced")
	f.BoolVar(&o.wait, "wait", true, "follow the request until it has ended")
	f.BoolVar(&o.dryRun, "dry-run", false,
		"let the API server check the request, and list the nodes, without cycling them")
	f.StringVarP(&o.output, "output", "o", "", "print the request as `yaml`")
	o.progress.Register(f)
	for _, other := range []string{"restore", "selector", "method", "concurrency", "cycling-timeout", "remove-label",
		"force", "delete-emptydir-data"} {
		cmd.MarkFlagsMutuallyExclusive("resume", other)
	}
	for _, other := range []string{"concurrency", "force"} { // one node at a time; pods that go have another place
		cmd.MarkFlagsMutuallyExclusive("restore", other)
	}
	// They fail only for flags that do not exist.
	_ = cmd.RegisterFlagCompletionFunc("context", o.completeContexts)
	_ = cmd.RegisterFlagCompletionFunc("method", cobra.FixedCompletions(
		[]string{string(nodes.MethodDrain), string(nodes.MethodWait)}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("output",
		cobra.FixedCompletions([]string{"yaml"}, cobra.ShellCompDirectiveNoFileComp))
	cmd.ValidArgsFunction = o.completeGroups
	return cmd
}

// completeContexts proposes the contexts of the kubeconfig.
func (o *cycleOptions) completeContexts(
	*cobra.Command, []string, string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	config, err := o.clientConfig().RawConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return slices.Sorted(maps.Keys(config.Contexts)), cobra.ShellCompDirectiveNoFileComp
}

// completionTimeout is how long a shell waits for the cluster's answer.
const completionTimeout = 3 * time.Second

// completeGroups proposes the simulated node groups of the cluster, and the groups of earlier requests.
func (o *cycleOptions) completeGroups(
	cmd *cobra.Command, have []string, _ string,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	to, err := o.clientConfig().ClientConfig()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	to.Timeout = completionTimeout
	client, err := objects.New(to)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names := map[string]bool{}
	groups, _ := client.List(cmd.Context(), GroupKey("*"))
	for _, g := range groups {
		names[g.GetName()] = true
	}
	requests, _ := client.List(cmd.Context(), RequestKey("*", "*"))
	for _, r := range requests {
		if name, _, _ := unstructured.NestedString(r.Object, "spec", "nodeGroupName"); name != "" {
			names[name] = true
		}
	}
	maps.DeleteFunc(names, func(name string, _ bool) bool { return slices.Contains(have, name) })
	return slices.Sorted(maps.Keys(names)), cobra.ShellCompDirectiveNoFileComp
}

// GroupKey names a simulated node group.
func GroupKey(name string) plan.ResourceKey {
	return plan.ResourceKey{Type: "simulatednodegroup", Group: nodes.GroupVersion.Group, Name: name}
}

// run makes a request and follows it. The error is an exit.Error.
func (o *cycleOptions) run(ctx context.Context, s output.Streams, groups []string) error {
	switch {
	case o.output != "" && o.output != "yaml":
		return exit.With(exit.Usage, fmt.Errorf("--output %s: want yaml", o.output))
	case o.concurrency < 0:
		return exit.With(exit.Usage, fmt.Errorf("--concurrency %d: want a number of nodes, or 0 for all",
			o.concurrency))
	case o.method != string(nodes.MethodDrain) && o.method != string(nodes.MethodWait):
		return exit.With(exit.Usage, fmt.Errorf("--method %s: want %s or %s", o.method, nodes.MethodDrain,
			nodes.MethodWait))
	}
	if o.selector != "" {
		if _, err := metav1.ParseToLabelSelector(o.selector); err != nil {
			return exit.With(exit.Usage, fmt.Errorf("--selector %s: %w", o.selector, err))
		}
	}
	config := o.clientConfig()
	to, err := config.ClientConfig()
	if err != nil {
		return exit.With(exit.CannotRun, err)
	}
	if o.namespace == "" {
		if o.namespace, _, err = config.Namespace(); err != nil {
			return exit.With(exit.CannotRun, err)
		}
	}
	client, err := objects.New(to)
	if err != nil {
		return exit.With(exit.CannotRun, err)
	}
	console, s, err := o.progress.Open(s)
	if err != nil {
		return err
	}
	defer console.Close()
	c := &cycling{cycleOptions: o, Streams: s, client: client, console: console}
	request, err := c.create(ctx, groups)
	if err != nil || o.dryRun {
		return err
	}
	c.key = RequestKey(request.GetNamespace(), request.GetName())
	if !o.wait {
		console.Info(fmt.Sprintf("the request %s was made; kubectl get cnr -n %s %s shows it", request.GetName(),
			request.GetNamespace(), request.GetName()))
		return nil
	}
	return c.follow(ctx)
}

func (o *cycleOptions) clientConfig() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules,
		&clientcmd.ConfigOverrides{CurrentContext: o.context})
}

// RequestKey names a request.
func RequestKey(namespace, name string) plan.ResourceKey {
	return plan.ResourceKey{Type: "cyclenoderequest", Group: nodes.GroupVersion.Group, Namespace: namespace, Name: name}
}

// cycling makes and follows one request.
type cycling struct {
	*cycleOptions
	output.Streams
	client  *objects.Client
	console *output.Console
	key     plan.ResourceKey
	told    string // the last phase that was shown
	waiting string // the last message
}

// create makes the request, or only lets the API server check it.
func (c *cycling) create(ctx context.Context, groups []string) (*unstructured.Unstructured, error) {
	request, err := c.request(ctx, groups)
	if err != nil {
		return nil, err
	}
	selected, err := c.selected(ctx, request)
	if err != nil {
		return nil, err
	}
	o, err := runtime.DefaultUnstructuredConverter.ToUnstructured(request)
	if err != nil {
		return nil, exit.With(exit.CannotRun, err)
	}
	u := &unstructured.Unstructured{Object: o}
	unstructured.RemoveNestedField(u.Object, "status")
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	t, err := c.client.Resolve(ctx, RequestKey(c.namespace, c.name))
	if err != nil {
		return nil, exit.With(exit.CannotRun, fmt.Errorf("%w (the controllers of node cycling are not installed: see "+
			"docs/node-cycling.md)", err))
	}
	options := metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}
	if c.dryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	created, err := c.client.Resource(t, c.namespace).Create(ctx, u, options)
	switch {
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsAlreadyExists(err):
		return nil, exit.With(exit.Usage, err)
	case err != nil:
		return nil, exit.With(exit.CannotRun, err)
	}
	if c.output == "yaml" {
		if c.dryRun {
			created = u // to be applied later, without what the API server would add
		}
		text, err := yaml.Marshal(created.Object)
		if err != nil {
			return nil, exit.With(exit.CannotRun, err)
		}
		fmt.Fprintf(c.Out, "%s", text)
	}
	if c.dryRun {
		text := fmt.Sprintf("%d nodes would be replaced: %s", len(selected), strings.Join(selected, ", "))
		if request.Spec.Restore {
			text = fmt.Sprintf("%d nodes were started for requests that failed, of which as many would be removed as "+
				"the groups have more than before: %s", len(selected), strings.Join(selected, ", "))
		}
		c.console.Info(text)
	}
	return created, nil
}

// again is a request like one that has failed, for those of its nodes that are left.
func (c *cycling) again(ctx context.Context) (*nodes.CycleNodeRequest, error) {
	found, err := c.client.Get(ctx, RequestKey(c.namespace, c.resume))
	switch {
	case apierrors.IsNotFound(err):
		return nil, exit.With(exit.Usage, fmt.Errorf("there is no request %s in namespace %s", c.resume, c.namespace))
	case err != nil:
		return nil, exit.With(exit.CannotRun, err)
	}
	r := &nodes.CycleNodeRequest{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, r); err != nil {
		return nil, exit.With(exit.CannotRun, err)
	}
	switch {
	case r.Status.Phase == nodes.RequestSuccessful:
		return nil, exit.With(exit.Usage, fmt.Errorf("the request %s was successful: nothing is left", c.resume))
	case r.Status.Phase != nodes.RequestFailed || r.DeletionTimestamp != nil:
		return nil, exit.With(exit.Usage, fmt.Errorf("the request %s goes on", c.resume))
	}
	var left []string
	for _, n := range r.Status.NodesToTerminate {
		if n.State != nodes.NodeCycled && n.State != nodes.NodeMissing {
			left = append(left, n.Name)
		}
	}
	if len(r.Status.NodesToTerminate) > 0 && len(left) == 0 {
		return nil, exit.With(exit.Usage, fmt.Errorf("all nodes of the request %s are replaced", c.resume))
	}
	again := &nodes.CycleNodeRequest{
		TypeMeta:   metav1.TypeMeta{APIVersion: nodes.GroupVersion.String(), Kind: "CycleNodeRequest"},
		ObjectMeta: metav1.ObjectMeta{Name: c.name, Namespace: c.namespace, Labels: r.Labels},
		Spec:       r.Spec,
	}
	if len(left) > 0 { // it had chosen nodes: those that came since are not its own
		again.Spec.NodeNames = left
	}
	if len(c.nodes) > 0 {
		again.Spec.NodeNames = c.nodes
	}
	c.nodes = again.Spec.NodeNames
	if c.skipMissing {
		again.Spec.ValidationOptions.SkipMissingNamedNodes = true
	}
	if c.name == "" {
		again.GenerateName = prefixOf(r.Spec.NodeGroupName)
	}
	return again, nil
}

// request is the request that the flags describe.
func (c *cycling) request(ctx context.Context, groups []string) (*nodes.CycleNodeRequest, error) {
	if c.resume != "" {
		return c.again(ctx)
	}
	selector := c.selector
	if selector == "" {
		found, err := c.client.Get(ctx, GroupKey(groups[0]))
		if apierrors.IsNotFound(err) {
			return nil, exit.With(exit.NoGroup, fmt.Errorf("there is no simulated node group %s; for a group of "+
				"another provider, say which nodes belong to it by their labels: -l pool=%s", groups[0], groups[0]))
		}
		if err != nil && !errors.Is(err, objects.ErrNotServed) {
			return nil, exit.With(exit.CannotRun, err)
		}
		if found == nil {
			return nil, exit.With(exit.Usage, fmt.Errorf("say which nodes belong to %s by their labels: -l pool=%s",
				groups[0], groups[0]))
		}
		selector = fmt.Sprintf("%s in (%s)", simulated.LabelGroup, strings.Join(groups, ","))
	}
	parsed, err := metav1.ParseToLabelSelector(selector)
	if err != nil {
		return nil, exit.With(exit.Usage, fmt.Errorf("--selector %s: %w", selector, err))
	}
	r := &nodes.CycleNodeRequest{
		TypeMeta:   metav1.TypeMeta{APIVersion: nodes.GroupVersion.String(), Kind: "CycleNodeRequest"},
		ObjectMeta: metav1.ObjectMeta{Name: c.name, Namespace: c.namespace},
		Spec: nodes.CycleNodeRequestSpec{
			NodeGroupName: groups[0], NodeGroupsList: groups[1:], Selector: *parsed, NodeNames: c.nodes,
			Restore: c.restore,
			CycleSettings: nodes.CycleSettings{
				Method: nodes.Method(c.method), Concurrency: c.concurrency, LabelsToRemove: c.labelsToRemove,
				Force: c.force, DeleteEmptyDirData: c.emptyDirData,
			},
			ValidationOptions: nodes.ValidationOptions{SkipMissingNamedNodes: c.skipMissing},
		},
	}
	if c.timeout != 0 {
		r.Spec.CycleSettings.CyclingTimeout = chaos.Duration(c.timeout.String())
	}
	if c.name == "" {
		r.GenerateName = prefixOf(groups[0])
	}
	return r, nil
}

// prefixOf is the beginning of a request's name.
func prefixOf(group string) string {
	const most = 40 // API servers add five characters; 52 are allowed
	name := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			return c
		}
		return '-'
	}, strings.ToLower(group))
	return strings.Trim(name[:min(len(name), most)], "-") + "-"
}

// selected returns the names of the nodes that the request is about, as far as labels tell.
func (c *cycling) selected(ctx context.Context, r *nodes.CycleNodeRequest) (names []string, err error) {
	selector, err := metav1.LabelSelectorAsSelector(&r.Spec.Selector)
	if err != nil {
		return nil, exit.With(exit.Usage, err)
	}
	all, err := c.client.List(ctx, plan.ResourceKey{Type: "node", Name: "*"})
	if err != nil {
		return nil, exit.With(exit.CannotRun, err)
	}
	for _, n := range all {
		if r.Spec.Restore && n.GetAnnotations()[controller.AnnotationSurplus] == "" {
			continue
		}
		if selector.Matches(labels.Set(n.GetLabels())) && (len(c.nodes) == 0 || slices.Contains(c.nodes, n.GetName())) {
			names = append(names, n.GetName())
		}
	}
	slices.Sort(names)
	if len(names) == 0 && !r.Spec.Restore {
		text := "no node has the labels " + selector.String()
		if len(c.nodes) > 0 {
			text += " and one of the names " + strings.Join(c.nodes, ", ")
		}
		return nil, exit.With(exit.Usage, errors.New(text))
	}
	return names, nil
}

// follow shows the request until it has ended.
func (c *cycling) follow(ctx context.Context) error {
	c.console.Show(progress.Event{Type: progress.Title, Text: fmt.Sprintf("cycling nodes: request %s in namespace %s",
		c.key.Name, c.key.Namespace)})
	var last nodes.CycleNodeRequestStatus
	deleted, restore := false, false
	err := objects.FollowOne(ctx, c.client, c.key, func(r *nodes.CycleNodeRequest) (bool, error) {
		if r == nil {
			return true, exit.With(exit.Inconclusive, fmt.Errorf("the request %s was deleted", c.key.Name))
		}
		last, deleted, restore = r.Status, r.DeletionTimestamp != nil, r.Spec.Restore
		c.show(&last, restore)
		return last.Phase == nodes.RequestSuccessful || last.Phase == nodes.RequestFailed, nil
	})
	switch {
	case ctx.Err() != nil:
		return c.interrupted()
	case errors.As(err, new(*exit.Error)):
		return err
	case err != nil:
		return exit.With(exit.CannotRun, err)
	case last.Phase == nodes.RequestFailed && deleted:
		return exit.With(exit.Inconclusive, fmt.Errorf("the request %s was deleted%s", c.key.Name,
			strings.TrimPrefix(last.Message, last.Reason)))
	case last.Phase == nodes.RequestFailed && last.MissingGroup != "":
		return exit.With(exit.NoGroup, fmt.Errorf("the provider knows no node group %s", last.MissingGroup))
	case last.Phase == nodes.RequestFailed:
		text := last.Message // it begins with the reason
		if !strings.HasPrefix(text, last.Reason) {
			text = strings.Trim(last.Reason+": "+text, ": ")
		}
		return exit.With(exit.Bug, fmt.Errorf("the request %s has failed: %s", c.key.Name, text))
	}
	c.console.Close()
	switch {
	case restore && last.NumNodesCycled == 0:
		fmt.Fprintln(c.Out, last.Message)
	case restore:
		fmt.Fprintf(c.Out, "%d nodes were removed\n", last.NumNodesCycled)
	default:
		fmt.Fprintf(c.Out, "%d nodes were replaced\n", last.NumNodesCycled)
	}
	return nil
}

// show prints what is new.
func (c *cycling) show(s *nodes.CycleNodeRequestStatus, restore bool) {
	var current []string
	for _, n := range s.CurrentNodes {
		current = append(current, n.Name)
	}
	done, of := int(s.NumNodesCycled), len(s.NodesToTerminate)
	text := cmp.Or(string(s.Phase), "New")
	if of > 0 {
		what := "replaced"
		if restore {
			what = "removed"
		}
		text += fmt.Sprintf(": %d of %d nodes %s", done, of, what)
	}
	if len(current) > 0 {
		text += "; now " + strings.Join(current, ", ")
	}
	if text != c.told {
		c.told = text
		c.console.Show(progress.Event{Type: progress.Phase, Text: text})
		c.console.Show(progress.Event{Type: progress.Status, Text: fmt.Sprintf("%d of %d nodes", done, of),
			Campaign: &progress.CampaignEvent{Done: done, Of: of, Running: current}})
	}
	ended := s.Phase == nodes.RequestSuccessful || s.Phase == nodes.RequestFailed
	if s.Message != "" && s.Message != c.waiting && !ended {
		c.console.Show(progress.Event{Type: progress.Waiting, Text: s.Message})
	}
	c.waiting = s.Message
}

// interrupted asks what becomes of the request. A second Ctrl-C ends the program, and the request goes on.
func (c *cycling) interrupted() error {
	c.console.Close()
	name := c.key.Name
	ends := fmt.Sprintf("kubectl delete cnr -n %s %s", c.key.Namespace, name)
	if f, ok := c.In.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		// From here on Ctrl-C ends the program. main makes it so, too, but perhaps only after the question is read.
		signal.Reset(os.Interrupt)
		fmt.Fprintf(c.Err, "\nThe request %s goes on in the cluster. "+
			"End it? Nodes that are not drained yet then stay. [y/N] ",
			name)
		answer, _ := bufio.NewReader(c.In).ReadString('\n')
		if slices.Contains([]string{"y", "yes"}, strings.ToLower(strings.TrimSpace(answer))) {
			return c.end()
		}
	}
	return exit.With(exit.Inconclusive, fmt.Errorf("the request %s goes on in the cluster; %s ends it", name, ends))
}

// end deletes the request and waits until it is gone.
func (c *cycling) end() error {
	ctx := context.Background() // a signal ends the program now
	if err := c.client.Delete(ctx, c.key, objects.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return exit.With(exit.CannotRun, err)
	}
	fmt.Fprintln(c.Err, "waiting until the nodes that are being terminated are gone and the others are back …")
	gone := func(r *nodes.CycleNodeRequest) (bool, error) { return r == nil, nil }
	err := objects.FollowOne(ctx, c.client, c.key, gone)
	if err != nil {
		return exit.With(exit.CannotRun, err)
	}
	return exit.With(exit.Inconclusive, fmt.Errorf("the request %s was ended", c.key.Name))
}
