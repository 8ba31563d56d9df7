package processnode_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/trommel-dev/trommel/chaos/inject"
	"github.com/trommel-dev/trommel/cluster/clustertest"
)

// victimOf is a tenant as a target.
func victimOf(t *testing.T, p *tenant) victim {
	t.Helper()
	pod, err := client.CoreV1().Pods(p.namespace).Get(t.Context(), p.name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return victim{uid: pod.UID, name: p.name}
}

func TestContainerFailure(t *testing.T) {
	ns := namespace(t)
	socket := socketOf(t, ns)
	start := func(name string) victim {
		create(t, ns, shellPod(name, "exec sleep 1000", controller(name)))
		awaitRunning(t, name, 1)
		return victim{uid: awaitPod(t, ns, name, "ready", isReady).UID, name: name}
	}
	target, _ := start("fails"), start("stays")
	end := begin(t, socket, ns, target, "containerFailure", `{"signal":"KILL"}`)
	clustertest.Eventually(t, func(context.Context) error {
		if all := status(t, "fails"); len(all) < 3 || all[1].Running() {
			return fmt.Errorf("processes: %+v", all)
		}
		return nil
	})
	end()
	all := status(t, "fails")
	ended := time.Now()
	last := awaitRunning(t, "fails", 1)[0]
	if d := time.Since(ended); d > 500*time.Millisecond {
		t.Errorf("it started %v after the end", d)
	}
	for _, p := range all {
		if !p.Running() && (!p.Planned || p.ExitCode != 137) {
			t.Errorf("a process ended with %+v", p)
		}
	}
	if beside := status(t, "stays"); len(beside) != 1 || !beside[0].Running() {
		t.Errorf("beside the target: %+v", beside)
	}
	begin(t, socket, ns, target, "containerFailure", `{"signal":"TERM","once":true}`)()
	clustertest.Eventually(t, func(context.Context) error {
		now := awaitRunning(t, "fails", 1)[0]
		if now.PID == last.PID {
			return errors.New("it was not ended")
		}
		return nil
	})
}

// cpuTime is the processor time that a process has used.
func cpuTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, _ := strconv.Atoi(fields[11])
	system, _ := strconv.Atoi(fields[12])
	return time.Duration(user+system) * 10 * time.Millisecond // USER_HZ is 100
}

func processState(t *testing.T, pid int) string {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))[0]
}

func TestCPUPressure(t *testing.T) {
	ns := namespace(t)
	socket := socketOf(t, ns)
	start := func(name string) (victim, int) {
		create(t, ns, shellPod(name, "while :; do :; done", controller(name)))
		pid := awaitRunning(t, name, 1)[0].PID
		return victim{uid: awaitPod(t, ns, name, "ready", isReady).UID, name: name}, pid
	}
	target, at := start("pressed")
	_, beside := start("not-pressed")
	for _, load := range []int{50, 80} {
		end := begin(t, socket, ns, target, "cpuPressure", fmt.Sprintf(`{"load":%d}`, load))
		const samples = 400
		stopped := 0
		a, b, start := cpuTime(t, at), cpuTime(t, beside), time.Now()
		for range samples {
			if processState(t, at) == "T" {
				stopped++
			}
			if s := processState(t, beside); s == "T" {
				t.Error("the process beside the target is stopped")
			}
			time.Sleep(2 * time.Millisecond) // what is measured
		}
		wall := time.Since(start)
		share := 100 * stopped / samples
		used, others := 100*(cpuTime(t, at)-a)/wall, 100*(cpuTime(t, beside)-b)/wall
		t.Logf("load %d: stopped for %d%% of the time; %d%% of a processor, %d%% beside it", load, share, used, others)
		if share < load-25 || share > load+20 || int(used) > 100-load+10 {
			t.Errorf("load %d: stopped for %d%% of the time; %d%% of a processor", load, share, used)
		}
		end()
		if s := processState(t, at); s == "T" {
			t.Error("the process is stopped after the end")
		}
	}
	t.Run("with a freeze", func(t *testing.T) {
		node := shared.Processes()
		end := begin(t, socket, ns, target, "cpuPressure", `{"load":50}`)
		if err := node.Freeze(t.Context(), "pressed", 0); err != nil {
			t.Fatal(err)
		}
		for range 50 {
			if s := processState(t, at); s != "T" {
				t.Fatalf("a frozen process is in state %s", s)
			}
			time.Sleep(2 * time.Millisecond) // more than a period altogether
		}
		end()
		if s := processState(t, at); s != "T" {
			t.Fatalf("a frozen process is in state %s after the end", s)
		}
		if _, err := node.Thaw(t.Context(), "pressed", false); err != nil {
			t.Fatal(err)
		}
		clustertest.Eventually(t, func(context.Context) error {
			if s := processState(t, at); s == "T" {
				return errors.New("stopped")
			}
			return nil
		})
	})
	t.Run("with a kill", func(t *testing.T) {
		node := shared.Processes()
		end := begin(t, socket, ns, target, "cpuPressure", `{"load":90}`)
		if err := node.Kill(t.Context(), "pressed"); err != nil {
			t.Fatal(err)
		}
		if err := node.Start(t.Context(), "pressed"); err != nil {
			t.Fatal(err)
		}
		end()
		if s := processState(t, awaitRunning(t, "pressed", 1)[0].PID); s == "T" {
			t.Error("the process is stopped after the end")
		}
	})
}

func TestDNSFault(t *testing.T) {
	ns, ctx := namespace(t), t.Context()
	socket := socketOf(t, ns)
	one, two := startTenant(t, ns, "one"), startTenant(t, ns, "two")
	web, err := client.CoreV1().Services(ns).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "tenant"},
			Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt(8080)}}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	full := "web." + ns + ".svc"
	for _, tt := range []struct{ fault, ask, want string }{
		{`{"name":"%s","fault":"nxdomain"}`, full, "error: no such host"},
		{`{"name":"%s.cluster.local","fault":"nxdomain"}`, "web", "error: no such host"},
		{`{"name":"%s","addresses":["10.0.0.7"]}`, "web." + ns, "10.0.0.7"},
		{`{"name":"*.` + ns + `.svc","addresses":["10.0.0.8"]}`, full, "10.0.0.8"},
		{`{"name":"other.example","fault":"nxdomain"}`, full, web.Spec.ClusterIP},
	} {
		spec := tt.fault
		if strings.Contains(spec, "%s") {
			spec = fmt.Sprintf(spec, full)
		}
		end := begin(t, socket, ns, victimOf(t, one), "dns", `{"records":[`+spec+`]}`)
		one.expect(t, "resolve", tt.ask, tt.want)
		two.expect(t, "resolve", tt.ask, web.Spec.ClusterIP)
		end()
		one.expect(t, "resolve", tt.ask, web.Spec.ClusterIP)
	}
	t.Run("random", func(t *testing.T) {
		begin(t, socket, ns, victimOf(t, one), "dns", `{"records":[{"name":"`+full+`","fault":"random"}]}`)
		seen := map[string]bool{}
		for range 5 {
			answer, err := one.ask(ctx, "resolve", full)
			ip, parsed := netip.ParseAddr(answer)
			if err != nil || parsed != nil || !netip.MustParsePrefix("198.18.0.0/15").Contains(ip) {
				t.Fatalf("answer %q, %v", answer, err)
			}
			seen[answer] = true
		}
		if len(seen) < 2 {
			t.Errorf("answers: %v", seen)
		}
		one.expect(t, "dial", full+":80", "error: nobody has the address")
	})
	t.Run("drop", func(t *testing.T) {
		end := begin(t, socket, ns, victimOf(t, one), "dns", `{"records":[{"name":"`+full+`","fault":"drop"}]}`)
		short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		if answer, err := one.ask(short, "resolve", full); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("answer %q, %v", answer, err)
		}
		two.expect(t, "resolve", full, web.Spec.ClusterIP)
		end()
		one.expect(t, "resolve", full, web.Spec.ClusterIP)
	})
	t.Run("unsupported", func(t *testing.T) {
		plain := newVictim(t, ns, "plain")
		for _, tt := range []struct {
			v            victim
			spec, reason string
		}{
			{victimOf(t, one), `{"records":[{"name":"x","fault":"servfail"}]}`, "no failing server"},
			{plain, `{"records":[{"name":"x","fault":"nxdomain"}]}`, "has no hooks"},
		} {
			err := newInjection(t, socket, ns, tt.v, "dns", tt.spec).Inject(ctx)
			if !errors.Is(err, inject.ErrUnsupported) || !strings.Contains(err.Error(), tt.reason) {
				t.Errorf("%s: %v", tt.spec, err)
			}
		}
	})
}

func TestNetworkFault(t *testing.T) {
	ns, ctx := namespace(t), t.Context()
	socket := socketOf(t, ns)
	allowAll(t, ns)
	one, two := startTenant(t, ns, "one"), startTenant(t, ns, "two")
	if _, err := client.CoreV1().Services(ns).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "tenant"},
			Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt(8080)}}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	url := "http://web." + ns + ".svc/host"
	took := func(p *tenant, question, subject string) time.Duration {
		t.Helper()
		start := time.Now()
		if _, err := p.ask(ctx, question, subject); err != nil {
			t.Error(err)
		}
		return time.Since(start)
	}
	clustertest.Eventually(t, func(ctx context.Context) error {
		_, err := one.ask(ctx, "get", url)
		return err
	})
	const slow, quick = 400 * time.Millisecond, 300 * time.Millisecond // two ways of 200 ms; at most
	t.Run("delay to a service", func(t *testing.T) {
		end := begin(t, socket, ns, victimOf(t, one), "network",
			`{"services":[{"name":"web","namespace":"`+ns+`"}],"delay":"200ms"}`)
		if d := took(one, "get", url); d < slow {
			t.Errorf("target: %v", d)
		}
		if d := took(two, "get", url); d > quick {
			t.Errorf("beside the target: %v", d)
		}
		if d := took(one, "api", ""); d > quick {
			t.Errorf("to the API server: %v", d)
		}
		end()
		if d := took(one, "get", url); d > quick {
			t.Errorf("after the end: %v", d)
		}
	})
	t.Run("another port", func(t *testing.T) {
		begin(t, socket, ns, victimOf(t, one), "network",
			`{"services":[{"name":"web","namespace":"`+ns+`","ports":[81]}],"delay":"200ms"}`)
		if d := took(one, "get", url); d > quick {
			t.Errorf("target: %v", d)
		}
	})
	t.Run("drop", func(t *testing.T) {
		end := begin(t, socket, ns, victimOf(t, one), "network",
			`{"hosts":[{"host":"web.`+ns+`.svc.cluster.local","port":80}],"drop":100}`)
		short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
		if answer, err := one.ask(short, "get", url); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("answer %q, %v", answer, err)
		}
		if d := took(two, "get", url); d > quick {
			t.Errorf("beside the target: %v", d)
		}
		end()
		if d := took(one, "get", url); d > quick {
			t.Errorf("after the end: %v", d)
		}
	})
	t.Run("API server", func(t *testing.T) {
		target, beside := newVictim(t, ns, "target"), newVictim(t, ns, "control")
		list := func(v victim) time.Duration {
			t.Helper()
			start := time.Now()
			if _, err := v.client.CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{}); err != nil {
				t.Error(err)
			}
			return time.Since(start)
		}
		list(target) // its connection stays open
		for _, spec := range []string{
			`{"services":[{"name":"kubernetes","namespace":"default"}],"delay":"200ms"}`,
			`{"hosts":[{"host":"10.96.0.1","port":443}],"delay":"250ms","delayJitter":"50ms"}`,
			`{"hosts":[{"host":"kubernetes.default.svc"}],"delay":"200ms"}`,
			`{"delay":"200ms"}`,
		} {
			end := begin(t, socket, ns, target, "network", spec)
			if d := list(target); d < slow || d > 2*slow {
				t.Errorf("%s: target: %v", spec, d)
			}
			if d := list(beside); d > quick {
				t.Errorf("%s: beside the target: %v", spec, d)
			}
			end()
			if d := list(target); d > quick {
				t.Errorf("%s: after the end: %v", spec, d)
			}
		}
		endDelay := begin(t, socket, ns, target, "network", `{"delay":"200ms"}`)
		// Both at once, each with its own effect.
		i := newInjection(t, socket, ns, target, "apiFault", `{"verbs":["list"],"status":500}`)
		if err := i.Inject(ctx); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if _, err := target.client.CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{}); err == nil ||
			time.Since(start) < slow {
			t.Errorf("with an apiFault: %v after %v", err, time.Since(start))
		}
		if err := i.Clean(ctx); err != nil {
			t.Error(err)
		}
		endDelay()
		list(target)
	})
	t.Run("unsupported", func(t *testing.T) {
		plain := newVictim(t, ns, "plain")
		for _, tt := range []struct {
			v            victim
			spec, reason string
		}{
			{victimOf(t, one), `{"hosts":[{"host":"10.0.0.1"}],"corrupt":10}`, "no packets"},
			{victimOf(t, one), `{"hosts":[{"host":"10.0.0.1","protocol":"udp"}],"drop":10}`, "UDP"},
			{victimOf(t, one), `{"hosts":[{"host":"10.0.0.1","flow":"ingress"}],"drop":10}`, "egress"},
			{victimOf(t, one), `{"hosts":[{"host":"` + two.ip + `"}],"drop":10}`, "loopback"},
			{victimOf(t, one), `{"hosts":[{"host":"10.0.0.1"}],"drop":10,"http":{"methods":["GET"]}}`, "HTTP"},
			{plain, `{"hosts":[{"host":"10.0.0.1"}],"drop":10}`, "has no hooks"},
		} {
			err := newInjection(t, socket, ns, tt.v, "network", tt.spec).Inject(ctx)
			if !errors.Is(err, inject.ErrUnsupported) || !strings.Contains(err.Error(), tt.reason) {
				t.Errorf("%s: %v", tt.spec, err)
			}
		}
	})
	if list, err := shared.Processes().Faults(ctx); err != nil || len(list) > 0 {
		t.Errorf("faults: %+v, %v", list, err)
	}
}
