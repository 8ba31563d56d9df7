package clusters

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/cluster/kubelet"
	"github.com/trommel-dev/trommel/internal/mistake"
	"github.com/trommel-dev/trommel/plan"
)

// Settings are what the clusters of a session have in common.
type Settings struct {
	Suite        *plan.Suite
	Kind         cluster.Kind
	ControlPlane string // path of its executable
	RemovedAPIs  bool   // serve API versions that Kubernetes has removed
	Context      string // of an existing cluster, which the user has named; it comes before the suite's
	Logger       *slog.Logger
}

// Start starts the cluster of a suite, or its clusters if it has several.
func (s *Settings) Start(ctx context.Context, info Info, need Need) (cluster.Cluster, error) {
	if names := s.Suite.ClusterNames(); names != nil {
		return s.startGroup(ctx, names, info, need)
	}
	config := s.config(s.Suite.Cluster, info)
	config.OwnTime, config.Needed = !need.RealTime, need.APIServers
	return s.Kind.Start(ctx, config)
}

// startGroup starts the clusters of a suite that has several: the first one with its clock, and then the others, on
// that clock and with the first one's coordinator.
func (s *Settings) startGroup(
	ctx context.Context, names []string, info Info, need Need,
) (_ cluster.Cluster, err error) {
	members, home := map[string]cluster.Cluster{}, map[string]string{}
	for _, c := range s.Suite.Controllers {
		home[c.Name] = c.Cluster
	}
	group := cluster.NewGroup(names, members, home)
	var mu sync.Mutex
	start := func(ctx context.Context, i int, beside cluster.Cluster) error {
		name := names[i]
		spec := s.Suite.ClusterSpecOf(name)
		config := s.config(spec, info)
		config.OwnTime = !need.RealTime
		for _, server := range plan.ServersOf(need.APIServers, name) {
			_, own := plan.SplitServer(server)
			config.Needed = append(config.Needed, own)
		}
		config.Member = cluster.Membership{
			Name: name, Beside: beside, FirstRevision: 1 + int64(i)*cluster.RevisionSpan,
			Small: s.Suite.SmallCluster(name),
		}
		c, err := s.Kind.Start(ctx, config)
		if err != nil {
			return fmt.Errorf("cluster %s: %w", name, err)
		}
		mu.Lock()
		defer mu.Unlock()
		members[name] = c
		return nil
	}
	if err := start(ctx, 0, nil); err != nil {
		return nil, err
	}
	first := members[names[0]]
	others, othersCtx := errgroup.WithContext(ctx)
	for i := range names[1:] {
		others.Go(func() error { return start(othersCtx, i+1, first) })
	}
	if err := others.Wait(); err != nil {
		for _, name := range slices.Backward(names) {
			if c := members[name]; c != nil {
				err = errors.Join(err, c.Close(context.WithoutCancel(ctx)))
			}
		}
		return nil, err
	}
	return group, nil
}

// config returns the configuration of a cluster of the suite.
func (s *Settings) config(spec plan.ClusterSpec, info Info) cluster.Config {
	nodes := 0 // as many as usual
	kind, _ := plan.LookupClusterKind(spec.Type)
	if spec.Nodes != nil && slices.Contains(kind.Can, plan.SimulateNodes) {
		nodes = cmp.Or(*spec.Nodes, -1) // none
	}
	return cluster.Config{
		Binary: s.ControlPlane, APIServers: spec.APIServers, OnDemand: true, Nodes: nodes,
		DisableControllers: spec.DisableControllers,
		FeatureGates:       spec.FeatureGates, APIServerArgs: spec.APIServerArgs,
		ControllerManagerArgs: spec.ControllerManagerArgs,
		RemovedAPIs:           s.RemovedAPIs,
		Images:                spec.Images,
		Pods: cluster.SimulatedPods{
			PodTimes: PodTimes(spec.SimulatedPods), Answers: answers(spec.Answers), StandIns: standIns(spec.Answers),
			JobKinds: spec.JobKinds,
		},
		Progress: info,
		Logger:   s.Logger,
	}
}

// PodTimes converts the times of simulated pods. A suite that was not read from a file may lack them.
func PodTimes(p plan.SimulatedPods) cluster.PodTimes {
	times := cluster.DefaultPodTimes()
	if p.Ready != nil {
		times.Ready = *p.Ready
	}
	if p.End != nil {
		times.End = *p.End
	}
	times.Seed = int64(p.Seed)
	return times
}

// Join returns the configuration of a cluster that is there.
func (s *Settings) Join(info Info) cluster.JoinConfig {
	spec := s.Suite.Cluster
	kubeconfig := spec.Kubeconfig
	if kubeconfig != "" {
		kubeconfig = plan.Beside(s.Suite.File, kubeconfig)
	}
	return cluster.JoinConfig{
		Kubeconfig: kubeconfig, Context: cmp.Or(s.Context, spec.Context), Namespaces: spec.Namespaces,
		Confirmed: s.Context != "", Progress: info, Logger: s.Logger,
	}
}

// answers converts the suite's answers, which have been validated.
func answers(list []plan.Answer) []kubelet.Answer {
	var all []kubelet.Answer
	for _, a := range list {
		if a.Service != "" {
			continue
		}
		answer := kubelet.Answer{
			Namespace: a.Namespace, Pod: a.Pod, Container: a.Container, Stdout: a.Stdout, Stderr: a.Stderr,
			ExitCode: a.ExitCode, Log: a.Log,
		}
		if a.Command != "" {
			answer.Command = regexp.MustCompile(a.Command)
		}
		all = append(all, answer)
	}
	return all
}

func standIns(list []plan.Answer) []cluster.StandIn {
	var all []cluster.StandIn
	for _, a := range list {
		if namespace, name, ok := strings.Cut(a.Service, "/"); ok {
			service := types.NamespacedName{Namespace: namespace, Name: name}
			all = append(all, cluster.StandIn{Namespace: a.Namespace, Pod: a.Pod, Service: service})
		}
	}
	return all
}

// Refused makes an error that the user has to solve one of the suite's.
func Refused(file string, err error) error {
	if refusal := (*cluster.Refusal)(nil); errors.As(err, &refusal) {
		return &mistake.Error{Err: fmt.Errorf("%s: %w", file, err)}
	}
	return err
}
