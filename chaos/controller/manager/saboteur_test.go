package manager

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/controller"
	"github.com/trommel-dev/trommel/chaos/inject/fault"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
)

// saboteur does what people and machines do to disruptions, their chaos pods and targets.
type saboteur struct {
	*fixture
	rand    *rand.Rand
	options Options
	stop    func()        // of the controllers; nil: they do not run
	left    *atomic.Int64 // requests that they may still make
	targets int           // that were created
	names   []string
	seen    map[string]bool // UIDs of disruptions
	ahead   *atomic.Int64   // by how much the controllers' clock is ahead; tests set it
}

// wrongClock is ahead of the machine's.
type wrongClock struct{ by *atomic.Int64 }

func (c wrongClock) Now() time.Time                  { return time.Now().Add(time.Duration(c.by.Load())) }
func (c wrongClock) Since(t time.Time) time.Duration { return c.Now().Sub(t) }

// TestSaboteur: after any number of random acts every status is true, and in the end nothing is left. The seed of a run
// that fails is printed; TROMMEL_TEST_SEED repeats its acts.
func TestSaboteur(t *testing.T) {
	acts, seed := 50, uint64(time.Now().UnixNano())
	if os.Getenv("TROMMEL_TEST_LONG") != "" {
		acts = 500
	}
	if text := os.Getenv("TROMMEL_TEST_SEED"); text != "" {
		seed = must(strconv.ParseUint(text, 10, 64))
	}
	t.Logf("TROMMEL_TEST_SEED=%d", seed)
	s := &saboteur{
		fixture: newFixture(t), rand: rand.New(rand.NewPCG(seed, 0)), options: options(), seen: map[string]bool{},
		ahead: &atomic.Int64{}, names: []string{"a", "b", "c", "d"},
	}
	s.options.Clock = wrongClock{s.ahead}
	for range 4 {
		s.newTarget()
	}
	s.startControllers()
	for n := range acts {
		act := sabotage[s.rand.IntN(len(sabotage))]
		err := act.do(s)
		t.Logf("%d: %s: %v", n, act.name, err)
		// A person or a program that is a moment late does not matter.
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) &&
			!errors.Is(err, syscall.ESRCH) && !errors.Is(err, errNothing) {
			t.Fatal(err)
		}
		if n%10 == 9 {
			s.startControllers()
			s.everyStatusIsTrue()
		}
	}
	s.startControllers()
	s.everyStatusIsTrue()
	s.nothingIsLeft()
}

// errNothing is returned by acts that find nothing to act on.
var errNothing = errors.New("nothing to act on")

// sabotage are the acts. Those that begin something are listed more than once.
var sabotage = []struct {
	name string
	do   func(*saboteur) error
}{
	{"disrupt", (*saboteur).begin}, {"disrupt", (*saboteur).begin}, {"disrupt", (*saboteur).begin},
	{"disrupt", (*saboteur).begin},
	{"end a disruption", func(s *saboteur) error {
		return s.withDisruption(func(d *chaos.Disruption) error { return s.Delete(s.t.Context(), d) })
	}},
	{"let a disruption go at once, and make one with its name", func(s *saboteur) error {
		return s.withDisruption(func(d *chaos.Disruption) error {
			err := s.Delete(s.t.Context(), d)
			if err == nil {
				err = s.strip(d)
			}
			if err == nil {
				err = s.create(d.Name)
			}
			return err
		})
	}},
	{"kill an injector", func(s *saboteur) error { return s.signal(syscall.SIGKILL) }},
	{"stop an injector, and delete a chaos pod", func(s *saboteur) error {
		return errors.Join(s.signal(syscall.SIGSTOP),
			s.withChaosPod(func(p *corev1.Pod) error { return s.Delete(s.t.Context(), p) }))
	}},
	{"delete a chaos pod at once", func(s *saboteur) error {
		return s.withChaosPod(func(p *corev1.Pod) error {
			return s.Delete(s.t.Context(), p, client.GracePeriodSeconds(0))
		})
	}},
	{"let a chaos pod go at once", func(s *saboteur) error {
		return s.withChaosPod(func(p *corev1.Pod) error {
			if err := s.Delete(s.t.Context(), p, client.GracePeriodSeconds(0)); err != nil {
				return err
			}
			return s.strip(p)
		})
	}},
	{"replace a target", func(s *saboteur) error {
		var pods corev1.PodList
		if err := s.List(s.t.Context(), &pods, client.InNamespace(s.namespace)); err != nil {
			return err
		}
		p := &pods.Items[s.rand.IntN(len(pods.Items))]
		s.newTarget()
		return s.Delete(s.t.Context(), p)
	}},
	{"end the controllers", func(s *saboteur) error {
		if s.stop == nil {
			return errNothing
		}
		s.stop()
		s.stop = nil
		return nil
	}},
	{"kill the controllers", func(s *saboteur) error {
		if s.stop == nil {
			return errNothing
		}
		s.left.Store(0) // for the API server that is the death of the process
		s.stop()
		s.stop = nil
		return nil
	}},
	{"set the controllers' clock", func(s *saboteur) error {
		s.ahead.Store(int64(time.Duration(s.rand.IntN(41)-20) * time.Second))
		return nil
	}},
	{"start the controllers", func(s *saboteur) error { s.startControllers(); return nil }},
	{"wait", func(s *saboteur) error { time.Sleep(time.Duration(s.rand.IntN(500)) * time.Millisecond); return nil }},
}

func (s *saboteur) startControllers() {
	if s.stop != nil {
		return
	}
	to, c := account.Config(s.t), &crash{
		left: &atomic.Int64{}, ended: make(chan struct{}), onEnd: &sync.Once{}, writes: &atomic.Int64{},
	}
	c.left.Store(math.MaxInt64)
	to.Wrap(func(rt http.RoundTripper) http.RoundTripper { c.base = rt; return c })
	s.stop, s.left = start(s.t, to, s.options), c.left
}

func (s *saboteur) newTarget() {
	s.targets++
	s.pod(fmt.Sprintf("target-%d", s.targets), shared.Processes().NodeName())
}

// begin creates a disruption, or another one of the name of one that has gone.
func (s *saboteur) begin() error {
	return s.create(s.names[s.rand.IntN(len(s.names))])
}

func (s *saboteur) create(name string) error {
	d := s.random(name)
	err := s.Create(s.t.Context(), d)
	if err == nil {
		s.seen[string(d.UID)] = true
	}
	return err
}

func (s *saboteur) random(name string) *chaos.Disruption {
	spec := hangs(func(spec *chaos.DisruptionSpec) {
		spec.Duration = duration(time.Duration(1+s.rand.IntN(15)) * time.Second)
		spec.DryRun = s.rand.IntN(8) == 0
		spec.AllowDisruptedTargets = s.rand.IntN(2) == 0
		if count := intstr.FromInt32(int32(1 + s.rand.IntN(4))); s.rand.IntN(2) == 0 {
			spec.Count = &count
		}
		if s.rand.IntN(4) == 0 {
			spec.Pulse = &chaos.Pulse{ActiveDuration: *duration(time.Second), DormantDuration: *duration(time.Second)}
		}
		if s.rand.IntN(2) == 0 {
			spec.CPUPressure = &chaos.CPUPressure{}
		}
	})
	if s.rand.IntN(8) == 0 { // a node's own
		spec.Level, spec.Selector = chaos.LevelNode, map[string]string{corev1.LabelHostname: "node-1"}
		spec.Kinds = chaos.Kinds{NodeFailure: &chaos.NodeFailure{}}
	}
	return s.disruption(name, spec)
}

func (s *saboteur) withDisruption(do func(*chaos.Disruption) error) error {
	var list chaos.DisruptionList
	if err := s.List(s.t.Context(), &list, client.InNamespace(s.namespace)); err != nil || len(list.Items) == 0 {
		return errors.Join(err, errNothing)
	}
	return do(&list.Items[s.rand.IntN(len(list.Items))])
}

func (s *saboteur) chaosPods(ctx context.Context) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := s.List(ctx, &list, client.InNamespace("trommel-chaos"))
	return slices.DeleteFunc(list.Items, func(p corev1.Pod) bool {
		return !strings.HasPrefix(p.Annotations[controller.AnnotationDisruption], s.namespace+"/")
	}), err
}

func (s *saboteur) withChaosPod(do func(*corev1.Pod) error) error {
	pods, err := s.chaosPods(s.t.Context())
	if err != nil || len(pods) == 0 {
		return errors.Join(err, errNothing)
	}
	return do(&pods[s.rand.IntN(len(pods))])
}

// signal sends a signal to an injector.
func (s *saboteur) signal(signal syscall.Signal) error {
	var pids []int
	for _, file := range must(filepath.Glob("/proc/[0-9]*/cmdline")) {
		data, err := os.ReadFile(file)
		if err == nil && strings.HasPrefix(string(data), injector+"\x00injector\x00inject\x00") &&
			strings.Contains(string(data), "\x00"+s.namespace+"/") {
			pids = append(pids, must(strconv.Atoi(filepath.Base(filepath.Dir(file)))))
		}
	}
	if len(pids) == 0 {
		return errNothing
	}
	slices.Sort(pids)
	return syscall.Kill(pids[s.rand.IntN(len(pids))], signal)
}

// strip takes all finalizers of an object away.
func (s *saboteur) strip(o client.Object) error {
	return s.Patch(s.t.Context(), o,
		client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))
}

// everyStatusIsTrue waits until the status of each disruption says what the process node does.
func (s *saboteur) everyStatusIsTrue() {
	s.t.Helper()
	clustertest.Eventually(s.t, func(ctx context.Context) error {
		var list chaos.DisruptionList
		if err := s.List(ctx, &list, client.InNamespace(s.namespace)); err != nil {
			return err
		}
		faults, err := shared.Processes().Faults(ctx)
		if err != nil {
			return err
		}
		for i := range list.Items {
			d := &list.Items[i]
			injected, inEffect := 0, 0
			for _, i := range d.Status.Injections {
				if i.State == chaos.InjectionInjected {
					injected++
				}
			}
			for _, f := range faults {
				if strings.HasPrefix(f.ID, string(d.UID)+".") {
					inEffect++
				}
			}
			if d.Spec.DryRun || d.Spec.NodeFailure != nil {
				inEffect = injected
			}
			over := strings.HasPrefix(string(d.Status.Phase), "Previously") || d.Status.Phase == chaos.NotInjected
			if d.Status.Phase == "" || injected != inEffect || over && inEffect > 0 || d.Status.IsStuckOnRemoval {
				return fmt.Errorf("%d faults of disruption %s (%s) are in effect: %+v", inEffect, d.Name, d.UID,
					d.Status)
			}
		}
		return nil
	})
}

// nothingIsLeft ends all, and looks for what is left.
func (s *saboteur) nothingIsLeft() {
	s.t.Helper()
	if err := s.DeleteAllOf(s.t.Context(), &chaos.Disruption{}, client.InNamespace(s.namespace)); err != nil {
		s.t.Fatal(err)
	}
	clustertest.Eventually(s.t, func(ctx context.Context) error {
		var list chaos.DisruptionList
		err := s.List(ctx, &list, client.InNamespace(s.namespace))
		pods, err2 := s.chaosPods(ctx)
		if err = errors.Join(err, err2); err != nil {
			return err
		}
		for _, d := range list.Items {
			err = errors.Join(err, fmt.Errorf("disruption %s: %+v, %+v", d.Name, d.ObjectMeta, d.Status))
		}
		for _, p := range pods {
			err = errors.Join(err, fmt.Errorf("chaos pod %s: %+v, %+v", p.Name, p.ObjectMeta, p.Status))
		}
		return err
	})
	// A fault whose injector never returned is undone by the next injector, when its time is over.
	clustertest.Eventually(s.t, func(ctx context.Context) error {
		// Of kinds that have the privileges, and a token.
		here := hangs(func(spec *chaos.DisruptionSpec) { spec.CPUPressure = &chaos.CPUPressure{} })
		// At another node than those that the acts are about: a node that fails is not a target.
		node := nodeLevel(func(spec *chaos.DisruptionSpec) {
			spec.Selector, spec.Duration = map[string]string{corev1.LabelHostname: "node-2"}, duration(time.Minute)
			spec.Kinds = chaos.Kinds{NodeFailure: &chaos.NodeFailure{}}
		})
		for _, spec := range []chaos.DisruptionSpec{here, node} {
			last := s.disruption("last", spec)
			if err := s.Create(ctx, last); err != nil {
				return err
			}
			clustertest.Eventually(s.t, func(ctx context.Context) error {
				err := s.Get(ctx, client.ObjectKeyFromObject(last), last)
				if err == nil && last.Status.Phase != chaos.Injected {
					err = fmt.Errorf("disruption %s is %s", last.Name, last.Status.Phase)
				}
				return client.IgnoreNotFound(err)
			})
			if err := s.Delete(ctx, last); client.IgnoreNotFound(err) != nil {
				return err
			}
			s.gone(last)
		}
		var left []string
		for _, file := range must(os.ReadDir(journal)) {
			for uid := range s.seen {
				if strings.HasPrefix(file.Name(), uid+".") {
					left = append(left, file.Name())
				}
			}
		}
		faults, err := shared.Processes().Faults(ctx)
		if err == nil && len(left)+len(faults) > 0 {
			err = fmt.Errorf("left in the journal: %q, on the process node: %+v", left, faults)
		}
		if err != nil {
			return err
		}
		failed := &corev1.Node{}
		if err := s.Get(ctx, client.ObjectKey{Name: "node-1"}, failed); err != nil {
			return err
		}
		if failed.Annotations[fault.AnnotationSimulated] == "" || failed.Spec.Unschedulable {
			return fmt.Errorf("node-1 is not repaired: %v", failed.Annotations)
		}
		return nil
	})
}
