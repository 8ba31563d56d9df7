package fleet

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mrand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trommel-dev/trommel/internal/run"
	"github.com/trommel-dev/trommel/record"
)

// cpu is how long this process has used a core so far.
func cpu(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// recordLike makes a record of about the size of a usual one.
func recordLike(dir, name string, verdict record.Verdict) error {
	w, err := record.Create(dir)
	if err != nil {
		return err
	}
	noise := make([]byte, recordBytes)
	_, _ = rand.Read(noise) // it does not get smaller by being compressed
	return errors.Join(w.Event(record.Event{}), os.WriteFile(w.LogFile("op.log"), noise, record.FileMode),
		w.Findings(nil), w.Meta(record.Meta{Plan: name, Verdict: verdict}), w.Close())
}

// recordBytes is the compressed size of what a worker sends of a plan that passes.
const recordBytes = 8 << 10

// simulate is many workers in one process, with the real protocol: what they do not do is run.
func simulate(server, token string, workers int, service time.Duration) error {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	from := filepath.Join(dir, "record")
	if err := recordLike(from, "a", record.Pass); err != nil {
		return err
	}
	packed := filepath.Join(dir, "record.tar.gz")
	digest, _, err := packTo(packed, from, nil)
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	var ready atomic.Int32
	ctx := context.Background()
	for i := range workers {
		all.Go(func() {
			c, err := newClient(server, token, fmt.Sprint("w", i), time.Minute, func(string) {})
			if err == nil {
				_, err = c.campaign(ctx)
			}
			if err != nil {
				fmt.Println(err)
				return
			}
			if int(ready.Add(1)) == workers {
				fmt.Println("ready")
			}
			for {
				job, err := c.take(ctx)
				if err != nil {
					return
				}
				end := time.After(service/2 + mrand.N(service))
				beat := time.NewTicker(defaultLease / 3)
			run:
				for {
					select {
					case <-end:
						break run
					case <-beat.C:
						_ = c.tell(ctx, "/v1/leases/"+job.Lease+"/beat", struct{}{})
					}
				}
				beat.Stop()
				err = c.retried(ctx, "send", func(ctx context.Context) error {
					if err := c.send(ctx, job.Lease, packed, digest); err != nil {
						return err
					}
					return c.tell(ctx, "/v1/leases/"+job.Lease+"/result", Result{Record: digest})
				})
				if err != nil {
					fmt.Println(err)
				}
			}
		})
	}
	all.Wait()
	return nil
}

// BenchmarkCoordinator is what a run of one of 1,000 workers costs the coordinator, and how many cores it needs if runs
// take ten seconds. The workers are another process.
func BenchmarkCoordinator(b *testing.B) {
	const workers, per = 1000, 10 * time.Second
	service := 10 * time.Second
	dir := b.TempDir()
	s := serve(b, func(c *Config) { c.Lease = defaultLease })
	token, err := s.Token()
	if err != nil {
		b.Fatal(err)
	}
	clients := exec.Command(os.Args[0])
	clients.Env = append(os.Environ(), "TEST_CLIENTS="+strconv.Itoa(workers), "TEST_SERVER=https://"+s.Address(),
		"TEST_TOKEN="+token, "TEST_SERVICE="+service.String())
	out, err := clients.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	clients.Stderr = b.Output()
	began, before := time.Now(), cpu(b)
	if err := clients.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		_ = clients.Process.Kill()
		_ = clients.Wait()
	}()
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "ready" {
		b.Log(lines.Text())
	}
	b.Logf("%d workers are there after %s, for %s of CPU", workers, time.Since(began), cpu(b)-before)
	go func() {
		for lines.Scan() {
		}
	}()
	var number atomic.Int64
	p := named(b, "fine-1")
	runs := b.N * workers
	b.ResetTimer()
	before = cpu(b)
	var all sync.WaitGroup
	for i := range workers {
		r := s.Runner(1)
		all.Go(func() {
			for int(number.Add(1)) <= runs {
				to := filepath.Join(dir, fmt.Sprint(i))
				if _, err := r.RunWith(b.Context(), p, to, run.RunOptions{}); err != nil {
					b.Error(err)
					return
				}
				if _, err := record.Open(to); err != nil { // as a campaign does
					b.Error(err)
				}
				_ = os.RemoveAll(to)
			}
		})
	}
	all.Wait()
	each := (cpu(b) - before) / time.Duration(runs)
	b.ReportMetric(float64(each.Microseconds()), "µs-cpu/run")
	b.ReportMetric(each.Seconds()*workers/per.Seconds(), "cores")
	b.ReportMetric(float64(runs)/b.Elapsed().Seconds(), "runs/s")
}

// BenchmarkMillionRuns plays a million runs on 10,000 workers through the queue, on a clock of its own. One in a
// thousand runs loses its worker.
func BenchmarkMillionRuns(b *testing.B) {
	for b.Loop() {
		before := cpu(b)
		took, c := play(10_000, 1_000_000, 10*time.Second)
		b.ReportMetric(float64((cpu(b)-before).Microseconds())/1e6, "µs-cpu/run")
		b.ReportMetric(took.Hours(), "hours")
		b.Logf("%+v", c)
	}
}

// TestManyWorkers is the same with fewer.
func TestManyWorkers(t *testing.T) {
	took, c := play(500, 5000, 10*time.Second)
	if c.Done != 5000 || c.Lost == 0 || c.GivenUp > 0 || took < 100*time.Second || took > 200*time.Second {
		t.Errorf("%+v in %s", c, took)
	}
}

// play has that many workers make runs that take about as long as service.
func play(workers, runs int, service time.Duration) (took time.Duration, c Counts) {
	synctest.Test(&testing.T{}, func(*testing.T) {
		q := NewQueue(defaultLease)
		ctx := context.Background()
		var crew, all sync.WaitGroup
		for i := range workers {
			crew.Go(func() {
				random := mrand.New(mrand.NewPCG(1, uint64(i))) //nolint:gosec // it is not a secret
				for generation := 0; ; {
					job, err := q.Take(ctx, fmt.Sprintf("%d.%d", i, generation))
					if err != nil {
						return
					}
					time.Sleep(service/2 + time.Duration(random.Int64N(int64(service))))
					if job.Attempt == 1 && random.IntN(1000) == 0 {
						time.Sleep(2 * defaultLease) // it is gone, and another one is started
						generation++
						continue
					}
					_ = q.Beat(job.Lease)
					_ = q.Finish(job.Lease, Result{Record: "a"})
				}
			})
		}
		began := time.Now()
		var number atomic.Int64
		for range workers {
			all.Go(func() {
				for int(number.Add(1)) <= runs {
					_, _ = q.Do(ctx, Job{Name: "a"})
				}
			})
		}
		all.Wait()
		took = time.Since(began)
		c = q.Counts()
		q.Close()
		crew.Wait()
	})
	return took, c
}
