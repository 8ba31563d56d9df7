package embedded_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/trommel-dev/trommel/internal/clock"
	"github.com/trommel-dev/trommel/internal/clock/keeper"
	"github.com/trommel-dev/trommel/internal/cluster/embedded"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
)

// What the tests of signals read from their environment.
const (
	envLong = "TROMMEL_TEST_LONG" // more rounds; `make long` sets it
	envSeed = "TROMMEL_TEST_SEED" // of an earlier run, to repeat its moments
)

// A stretch takes seconds if the clock moves ahead, and longer than inReal if it goes as the machine's.
const (
	stretch = 90 * time.Second
	inReal  = time.Minute
)

// random draws what happens when. Without envSeed short tests draw the same each time.
func random(t *testing.T) (r *rand.Rand, rounds int) {
	t.Helper()
	seed, rounds := uint64(1), 1
	if os.Getenv(envLong) != "" {
		seed, rounds = uint64(time.Now().UnixNano()), 8
	}
	if s := os.Getenv(envSeed); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("%s: %v", envSeed, err)
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("repeat with %s=%d", envSeed, seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0)), rounds
}

func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)))
}

// timed is a cluster that has its own clock, with a controller and a workload.
type timed struct {
	*testing.T
	cluster *embedded.Cluster
	keeper  *keeper.Keeper
	client  kubernetes.Interface
	rounds  atomic.Int64 // of the workload
	lastErr atomic.Value // of the workload
}

func startTimed(t *testing.T, dir string) *timed {
	t.Helper()
	skipWithoutClock(t)
	c := clustertest.Start(t, embedded.Config{OwnTime: true, APIServers: 2, Nodes: 1, Dir: dir})
	s := &timed{T: t, cluster: c, keeper: embedded.Keeper(c)}
	config, err := c.RESTConfig("")
	if err != nil {
		t.Fatal(err)
	}
	// Requests to a process that is stopped fail in real time too.
	config.Timeout = 5 * time.Second
	if s.client, err = kubernetes.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	s.startController()
	return s
}

func skipWithoutClock(t *testing.T) {
	t.Helper()
	if runtime.GOOS != "linux" || runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		t.Skip("the clock needs Linux on amd64 or arm64")
	}
}

// startController starts a pod on the process node whose process has the clock, and timers of its own: another etcd.
func (s *timed) startController() {
	s.Helper()
	binary, err := clustertest.Binary()
	if err != nil {
		s.Fatal(err)
	}
	own := shortDir(s.T) // pods share the machine's files
	pod := clustertest.ShellPod("controller", "", clustertest.Controller("controller"))
	pod.Spec.Containers[0].Command = []string{
		binary, "etcd", "--data-dir=" + own + "/data", "--listen-client-urls=unix://" + own + "/client",
		"--advertise-client-urls=http://127.0.0.1:1", "--listen-peer-urls=unix://" + own + "/peer",
	}
	if _, err := s.client.CoreV1().Pods("default").Create(s.Context(), pod, metav1.CreateOptions{}); err != nil {
		s.Fatal(err)
	}
	if err := s.cluster.Processes().Start(s.Context(), "controller"); err != nil {
		s.Fatal(err)
	}
}

// work creates a pod, waits until it runs, deletes it, and waits until it is gone, again and again, until ctx ends.
// What fails is tried again.
func (s *timed) work(ctx context.Context) {
	pods := s.client.CoreV1().Pods("default")
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprintf("worker-%d", i)
		for _, step := range []func() error{
			func() error {
				_, err := pods.Create(ctx, newPod(name), metav1.CreateOptions{})
				if apierrors.IsAlreadyExists(err) {
					return nil
				}
				return err
			},
			func() error {
				pod, err := pods.Get(ctx, name, metav1.GetOptions{})
				if err == nil && pod.Status.Phase != corev1.PodRunning {
					return errors.New(name + " does not run")
				}
				return err
			},
			func() error {
				if err := pods.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
					return err
				}
				_, err := pods.Get(ctx, name, metav1.GetOptions{})
				if apierrors.IsNotFound(err) {
					return nil
				}
				return errors.Join(err, errors.New(name+" is not gone"))
			},
		} {
			for {
				err := step()
				if err == nil {
					break
				}
				s.lastErr.Store(err.Error())
				if clock.Sleep(ctx, time.Second) != nil {
					return
				}
			}
		}
		s.rounds.Add(1)
	}
}

// goesOn checks that the clock moves ahead.
func (s *timed) goesOn(when string) {
	s.Helper()
	select {
	case <-s.cluster.Clock().After(stretch):
	case <-time.After(inReal):
		s.Fatalf("%s: the clock does not move ahead; the keeper sees %+v", when, s.keeper.State())
	}
}

// works checks that the workload makes progress.
func (s *timed) works(when string) {
	s.Helper()
	begin := s.rounds.Load()
	clustertest.Eventually(s, func(context.Context) error {
		// The round that goes on now may have been nearly complete.
		if s.rounds.Load() < begin+2 {
			return fmt.Errorf("%s: the workload stands still: %v; the keeper sees %+v", when, s.lastErr.Load(),
				s.keeper.State())
		}
		return nil
	})
}

// victim is a process of the cluster.
type victim struct {
	name string // such as kube-apiserver; controller
	pid  int
}

func (v victim) String() string { return fmt.Sprintf("%s (process %d)", v.name, v.pid) }

// victims are the processes that have the clock, of each kind.
func (s *timed) victims() []victim {
	s.Helper()
	var all []victim
	for _, pid := range processesWith(s.T, s.cluster.Dir()+"/") {
		if !s.keeper.Has(pid) {
			continue
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil {
			continue
		}
		args := strings.Split(string(text), "\x00")
		name := filepath.Base(args[0])
		if len(args) > 1 && args[1] == "etcd" {
			name = "controller"
		}
		all = append(all, victim{name, pid})
	}
	slices.SortFunc(all, func(a, b victim) int { return strings.Compare(a.name, b.name) })
	return all
}

// all waits until each process has the clock.
func (s *timed) all(n int) (all []victim) {
	s.Helper()
	clustertest.Eventually(s, func(context.Context) error {
		if all = s.victims(); len(all) != n || s.keeper.State().Processes != n {
			return fmt.Errorf("%v and %d processes have the clock, want %d", all, s.keeper.State().Processes, n)
		}
		return nil
	})
	return all
}

// processes are those of etcd, two API servers, the controller manager, the scheduler, KWOK and the controller.
const processes = 7

// TestStoppedAndKilledByTheClock stops and kills each process at a random moment, while the clock moves ahead and a
// workload goes on. The clock does not wait for a process that cannot be woken, nor for one that is gone; and when all
// are back, the workload goes on too.
func TestStoppedAndKilledByTheClock(t *testing.T) {
	if os.Getenv(envLong) == "" {
		t.Skip("set " + envLong)
	}
	r, rounds := random(t)
	dir := shortDir(t)
	s := startTimed(t, dir)
	ctx, cancel := context.WithCancel(clock.With(t.Context(), s.cluster.Clock()))
	worked := make(chan struct{})
	go func() { defer close(worked); s.work(ctx) }()
	defer func() { cancel(); <-worked }()
	for range rounds {
		order := s.all(processes)
		r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for _, v := range order {
			time.Sleep(between(r, 0, 200*time.Millisecond)) // a moment that nothing chooses
			begin := time.Now()
			if err := unix.Kill(v.pid, unix.SIGSTOP); err != nil {
				t.Fatalf("stop %s: %v", v, err)
			}
			s.goesOn(fmt.Sprintf("while %s is stopped", v))
			if err := unix.Kill(v.pid, unix.SIGCONT); err != nil {
				t.Fatalf("continue %s: %v", v, err)
			}
			stopped := time.Since(begin)
			s.works(fmt.Sprintf("after %s was stopped", v))
			t.Logf("%s was stopped for %s; after %s everything worked", v, stopped.Round(time.Millisecond),
				time.Since(begin).Round(time.Millisecond))
		}
		order = s.all(processes)
		r.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for _, v := range order {
			time.Sleep(between(r, 0, 200*time.Millisecond))
			s.kill(v)
		}
	}
	cancel()
	<-worked
	if err := s.cluster.Close(context.Background()); err != nil {
		t.Error(err)
	}
	checkNothingLeft(t, dir)
}

// kill kills a process, and checks that the clock goes on without it, and that everything works with its successor.
func (s *timed) kill(v victim) {
	s.Helper()
	begin := time.Now()
	if err := unix.Kill(v.pid, unix.SIGKILL); err != nil {
		// Some exit when what they need is gone.
		s.Logf("kill %s: %v", v, err)
	}
	clustertest.Eventually(s, func(context.Context) error {
		if s.keeper.Has(v.pid) {
			return fmt.Errorf("the keeper still has %s", v)
		}
		return nil
	})
	s.goesOn(fmt.Sprintf("after %s was killed", v))
	for _, name := range s.cluster.APIServers() {
		ctx, cancel := context.WithTimeout(s.Context(), clustertest.StartTimeout)
		if err := s.cluster.StartAPIServer(ctx, name); err != nil {
			s.Fatalf("after %s was killed: %v", v, err)
		}
		cancel()
	}
	s.all(processes)
	s.works(fmt.Sprintf("after %s was killed", v))
	s.Logf("%s was killed; after %s everything worked", v, time.Since(begin).Round(time.Millisecond))
}

// TestKeeperStoppedAndKilled stops the process that keeps a cluster's clock, at random moments: the cluster's processes
// then live in real time, with an offset that stands still, until it goes on. When it is killed, nothing is left.
func TestKeeperStoppedAndKilled(t *testing.T) {
	skipWithoutClock(t)
	r, rounds := random(t)
	for range rounds {
		h := startHelper(t, "timed")
		if !h.lines.Scan() {
			t.Fatal("the helper names no kubeconfig")
		}
		config, err := clientcmd.BuildConfigFromFlags("", h.lines.Text())
		if err != nil {
			t.Fatal(err)
		}
		config.Timeout = time.Minute
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		offset := clockOf(t, h.dir)
		for range 3 {
			clustertest.Eventually(t, moves(offset))
			time.Sleep(between(r, 0, 200*time.Millisecond))
			if err := h.Process.Signal(unix.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			awaitStopped(t, h.Process.Pid)
			before, begin := offset(), time.Now()
			// The API server writes to etcd, and ends a watch by a timer of its own. Others reach it through the
			// process that is stopped.
			name := fmt.Sprintf("ns-%d", r.Uint32())
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
			if _, err := client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			second := int64(1)
			watch, err := client.CoreV1().Namespaces().Watch(t.Context(), metav1.ListOptions{TimeoutSeconds: &second})
			if err != nil {
				t.Fatal(err)
			}
			for range watch.ResultChan() {
			}
			if now := offset(); now != before {
				t.Errorf("the clock has moved by %s although its keeper was stopped", now-before)
			}
			if err := h.Process.Signal(unix.SIGCONT); err != nil {
				t.Fatal(err)
			}
			clustertest.Eventually(t, moves(offset))
			t.Logf("stopped for %s", time.Since(begin).Round(time.Millisecond))
		}
		time.Sleep(between(r, 0, 200*time.Millisecond))
		if err := h.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = h.Wait()
		clustertest.Eventually(t, func(context.Context) error {
			if pids := processesWith(t, h.dir+"/"); len(pids) > 0 {
				return fmt.Errorf("processes left: %v", pids)
			}
			return nil
		})
	}
}

// clockOf returns a function that reads how far the clock of the cluster whose directory is in dir is ahead.
func clockOf(t *testing.T, dir string) func() time.Duration {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*", "clock"))
	if err != nil || len(files) != 1 {
		t.Fatalf("clocks %v, %v", files, err)
	}
	return func() time.Duration {
		data, err := os.ReadFile(files[0])
		if err != nil || len(data) < 8 {
			t.Fatalf("read the clock: %v", err)
		}
		return time.Duration(binary.NativeEndian.Uint64(data))
	}
}

// moves returns a condition: the clock has moved since now.
func moves(offset func() time.Duration) func(context.Context) error {
	before := offset()
	return func(context.Context) error {
		if offset() == before {
			return fmt.Errorf("the clock stands still, %s ahead", before)
		}
		return nil
	}
}

func awaitStopped(t *testing.T, pid int) {
	t.Helper()
	clustertest.Eventually(t, func(context.Context) error {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil {
			return err
		}
		for _, file := range threads {
			text, err := os.ReadFile(file)
			if err != nil {
				return err
			}
			if _, state, _ := strings.Cut(string(text), ") "); !strings.HasPrefix(state, "T") {
				return fmt.Errorf("%s: %s", file, state)
			}
		}
		return nil
	})
}

// runTimed is the helper of TestKeeperStoppedAndKilled.
func runTimed(ctx context.Context, config embedded.Config) error {
	config.OwnTime = true
	c, err := embedded.Start(ctx, config)
	if err != nil {
		return err
	}
	kubeconfig, err := c.Kubeconfig("")
	if err != nil {
		return err
	}
	fmt.Println("ready")
	fmt.Println(kubeconfig)
	<-ctx.Done()
	return c.Close(context.Background())
}
