package processnode_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/testing/clustertest"
)

func TestExitCodes(t *testing.T) {
	ns := pods.Namespace(t)
	for _, tt := range []struct {
		name, script string
		phase        corev1.PodPhase
		code         int32
		reason       string
	}{
		{"success", "echo done", corev1.PodSucceeded, 0, "Completed"},
		{"failure", "exit 3", corev1.PodFailed, 3, "Error"},
		{"signal", "kill -9 $$$$", corev1.PodFailed, 137, "Error"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			pods.Create(t, ns, clustertest.ShellPod(tt.name, tt.script))
			pod := pods.AwaitPhase(t, ns, tt.name, tt.phase)
			s := pod.Status.ContainerStatuses[0].State.Terminated
			if s == nil || s.ExitCode != tt.code || s.Reason != tt.reason || clustertest.IsReady(pod) {
				t.Errorf("status %+v, ready %t", pod.Status, clustertest.IsReady(pod))
			}
		})
	}
}

func TestTerminationMessage(t *testing.T) {
	ns := pods.Namespace(t)
	const script = "seq 1000; echo out of luck >&2; exit 1"
	pods.Create(t, ns, clustertest.ShellPod("log", script, func(p *corev1.Pod) {
		p.Spec.Containers[0].TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	}))
	pods.Create(t, ns, clustertest.ShellPod("file", script))
	pods.Create(t, ns, clustertest.ShellPod("written", "echo all is well > /dev/termination-log"))

	message := pods.AwaitPhase(t, ns, "log", corev1.PodFailed).Status.ContainerStatuses[0].State.Terminated.Message
	if len(message) > 2048 || !strings.HasSuffix(message, "\n999\n1000\nout of luck\n") {
		t.Errorf("the log's end: %d bytes, %q", len(message), message)
	}
	message = pods.AwaitPhase(t, ns, "file", corev1.PodFailed).Status.ContainerStatuses[0].State.Terminated.Message
	if message != "" {
		t.Errorf("without a policy: %q", message)
	}
	written := pods.AwaitPhase(t, ns, "written", corev1.PodSucceeded)
	message = written.Status.ContainerStatuses[0].State.Terminated.Message
	if message != "all is well\n" {
		t.Errorf("written into the file: %q", message)
	}
}

func TestRestartPolicy(t *testing.T) {
	t.Parallel() // it waits for delays
	ns := pods.Namespace(t)
	// Fails twice, then succeeds.
	script := `n=$(cat "$HOME/n" 2>/dev/null || echo 0); echo $((n+1)) > "$HOME/n"; [ $n -ge 2 ]`
	pods.Create(t, ns, clustertest.ShellPod("on-failure", script,
		func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure }))
	pods.Create(t, ns, clustertest.ShellPod("always", script, func(p *corev1.Pod) {
		p.Spec.RestartPolicy = corev1.RestartPolicyAlways
	}))
	pods.Create(t, ns, clustertest.ShellPod("never", script))

	pods.AwaitPhase(t, ns, "never", corev1.PodFailed)
	pod := pods.AwaitPhase(t, ns, "on-failure", corev1.PodSucceeded)
	if n := pod.Status.ContainerStatuses[0].RestartCount; n != 2 {
		t.Errorf("OnFailure: %d restarts, want 2", n)
	}
	pods.Await(t, ns, "always", "3 restarts, the last waiting for its back-off", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses
		return len(s) == 1 && s[0].RestartCount >= 3 && s[0].State.Waiting != nil &&
			s[0].State.Waiting.Reason == "CrashLoopBackOff" && s[0].LastTerminationState.Terminated != nil
	})
}

func TestGrace(t *testing.T) {
	ns := pods.Namespace(t)
	for _, tt := range []struct {
		name, script string
		grace        int64
		atLeast      time.Duration
		atMost       time.Duration
	}{
		{"ends-at-sigterm", "trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done", 60, 0, 20 * time.Second},
		{"ignores-sigterm", "trap '' TERM; echo up; while :; do sleep 0.05; done", 1, time.Second, 20 * time.Second},
		{"no-grace", "trap '' TERM; echo up; while :; do sleep 0.05; done", 0, 0, 20 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			pods.Create(t, ns, clustertest.ShellPod(tt.name, tt.script, clustertest.Controller(tt.name)))
			pods.AwaitPhase(t, ns, tt.name, corev1.PodRunning)
			pods.AwaitOutput(t, ns, tt.name, "up")
			start := time.Now()
			err := client.CoreV1().Pods(ns).
				Delete(t.Context(), tt.name, metav1.DeleteOptions{GracePeriodSeconds: &tt.grace})
			if err != nil {
				t.Fatal(err)
			}
			clustertest.Eventually(t, func(ctx context.Context) error {
				_, err := client.CoreV1().Pods(ns).Get(ctx, tt.name, metav1.GetOptions{})
				if !apierrors.IsNotFound(err) {
					return fmt.Errorf("pod is still there (%v)", err)
				}
				all, err := shared.Processes().Status(ctx, tt.name)
				if err != nil || len(all) != 1 || all[0].Running() {
					return fmt.Errorf("process has not ended: %+v, %v", all, err)
				}
				return nil
			})
			if took := time.Since(start); took < tt.atLeast || took > tt.atMost {
				t.Errorf("took %s", took)
			}
			all, _ := shared.Processes().Status(t.Context(), tt.name)
			if !all[0].Planned {
				t.Error("the end of a deleted pod's process is planned")
			}
		})
	}
}

func TestEnvironment(t *testing.T) {
	ns := pods.Namespace(t)
	ctx := t.Context()
	if _, err := client.CoreV1().ConfigMaps(ns).Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "cm"}, Data: map[string]string{"key": "from-config-map", "OTHER": "other"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Secrets(ns).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "secret"}, StringData: map[string]string{"key": "from-secret"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	yes := true
	pods.Create(t, ns, clustertest.ShellPod("env", "", func(p *corev1.Pod) {
		p.Labels = map[string]string{"app": "x"}
		c := &p.Spec.Containers[0]
		c.Command = []string{"sh", "-c", `
			echo "$PLAIN|$NESTED|$CM|$SECRET|$NAME|$NS|$LABEL|$NODE|$P_OTHER|$ABSENT|$(ARG)|$1"
			cat /cfg/renamed "$MOUNT/OTHER"; cat "$TROMMEL_SERVICEACCOUNT_DIR/namespace"
			ls "$TROMMEL_SERVICEACCOUNT_DIR"; pwd`, "sh"}
		c.Args = []string{"--file=/cfg/renamed"}
		c.Env = []corev1.EnvVar{
			{Name: "PLAIN", Value: "plain"},
			{Name: "NESTED", Value: "<$(PLAIN)>"},
			{Name: "ARG", Value: "argument"},
			{Name: "MOUNT", Value: "/all"},
			{Name: "CM", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}, Key: "key"}}},
			{Name: "SECRET", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "secret"}, Key: "key"}}},
			{Name: "ABSENT", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "secret"}, Key: "none", Optional: &yes}}},
			{
				Name:      "NAME",
				ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}},
			},
			{
				Name:      "NS",
				ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}},
			},
			{
				Name: "LABEL",
				ValueFrom: &corev1.EnvVarSource{
					FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['app']"},
				},
			},
			{
				Name:      "NODE",
				ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "spec.nodeName"}},
			},
		}
		c.EnvFrom = []corev1.EnvFromSource{{Prefix: "P_", ConfigMapRef: &corev1.ConfigMapEnvSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}}}}
		c.VolumeMounts = []corev1.VolumeMount{{Name: "cfg", MountPath: "/cfg"}, {Name: "all", MountPath: "/all"}}
		p.Spec.Volumes = []corev1.Volume{
			{Name: "cfg", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
				LocalObjectReference: corev1.LocalObjectReference{Name: "cm"},
				Items:                []corev1.KeyToPath{{Key: "key", Path: "renamed"}}}}},
			{Name: "all",
				VolumeSource: corev1.VolumeSource{
					Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
						{
							ConfigMap: &corev1.ConfigMapProjection{
								LocalObjectReference: corev1.LocalObjectReference{Name: "cm"},
							},
						},
						{
							Secret: &corev1.SecretProjection{
								LocalObjectReference: corev1.LocalObjectReference{Name: "secret"},
								Items:                []corev1.KeyToPath{{Key: "key", Path: "s"}},
							},
						},
					}}}},
		}
	}))
	pods.AwaitPhase(t, ns, "env", corev1.PodSucceeded)
	got := pods.Output(t, ns, "env")
	lines := strings.Split(got, "\n")
	want := "plain|<plain>|from-config-map|from-secret|env|" + ns + "|x|process-node|other||argument|--file="
	if !strings.HasPrefix(lines[0], want) || !strings.HasSuffix(lines[0], "/renamed") ||
		strings.Contains(lines[0], "--file=/cfg") {
		t.Errorf("got  %s\nwant %s<directory>/renamed", lines[0], want)
	}
	if !strings.Contains(got, "from-config-mapother"+ns) || !strings.Contains(got, "ca.crt\nnamespace\ntoken\n") {
		t.Errorf("files: %s", got)
	}
}

// A pod waits for objects that it refers to, and its status says so.
func TestMissingConfigMap(t *testing.T) {
	ns := pods.Namespace(t)
	pods.Create(t, ns, clustertest.ShellPod("waits", "echo $V", func(p *corev1.Pod) {
		p.Spec.Containers[0].Env = []corev1.EnvVar{
			{Name: "V", ValueFrom: &corev1.EnvVarSource{ConfigMapKeyRef: &corev1.ConfigMapKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "late"}, Key: "key"}}}}
	}))
	pod := pods.Await(t, ns, "waits", "CreateContainerConfigError", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses
		return len(s) == 1 && s[0].State.Waiting != nil && s[0].State.Waiting.Reason == "CreateContainerConfigError"
	})
	if m := pod.Status.ContainerStatuses[0].State.Waiting.Message; !strings.Contains(m, `configmaps "late" not found`) {
		t.Errorf("message %q", m)
	}
	if _, err := client.CoreV1().ConfigMaps(ns).Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "late"}, Data: map[string]string{"key": "here"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pods.AwaitPhase(t, ns, "waits", corev1.PodSucceeded)
	if got := pods.Output(t, ns, "waits"); got != "here\n" {
		t.Errorf("output %q", got)
	}
}

func TestBinaryStandsForImage(t *testing.T) {
	ns := pods.Namespace(t)
	script := filepath.Join(t.TempDir(), "manager")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho ran \"$@\" in $(pwd)\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, tt := range []struct {
		name    string
		command []string
	}{
		{"entrypoint", nil},
		{"command", []string{"/manager"}},
	} {
		pods.Create(t, ns, clustertest.ShellPod(tt.name, "", func(p *corev1.Pod) {
			p.Annotations[cluster.AnnotationBinaryPrefix+"main"] = script
			p.Annotations[cluster.AnnotationWorkDirPrefix+"main"] = dir
			p.Spec.Containers[0].Command = tt.command
			p.Spec.Containers[0].Args = []string{"--leader-elect"}
		}))
		pods.AwaitPhase(t, ns, tt.name, corev1.PodSucceeded)
		if got, want := pods.Output(t, ns, tt.name), "ran --leader-elect in "+dir+"\n"; got != want {
			t.Errorf("%s: got %q, want %q", tt.name, got, want)
		}
	}
}

// A pod's author can write an annotation. A controller's pod is made of another author's chart, so the suite says it.
func TestImageWithoutExecutable(t *testing.T) {
	ns := pods.Namespace(t)
	for name, want := range map[string]string{
		"": `container "main": has no command, and no executable is given for image "none": name one in the pod's ` +
			"annotation binary.trommel.dev/main",
		"op": `container "init": has no command, and no executable is given for image "none": name one with ` +
			"`executables:` of the controller op in the suite",
	} {
		pod := clustertest.ShellPod("neither"+name, "", func(p *corev1.Pod) { p.Spec.Containers[0].Command = nil })
		if name != "" {
			pod = clustertest.ShellPod("neither"+name, "exec sleep 1000", clustertest.Controller(name),
				func(p *corev1.Pod) { p.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "none"}} })
		}
		pods.Create(t, ns, pod)
		pods.Await(t, ns, pod.Name, want, func(p *corev1.Pod) bool {
			s := p.Status.ContainerStatuses
			return len(s) == 1 && s[0].State.Waiting != nil && s[0].State.Waiting.Message == want
		})
	}
}

// A controller starts, and its pod becomes ready, although another container of the pod has no program. Regression: a
// proxy for metrics, as operators of kubebuilder 3 have it, kept the controller from starting.
func TestContainersBesideAControllerThatHaveNoProgram(t *testing.T) {
	ns, ctx, node := pods.Namespace(t), t.Context(), shared.Processes()
	always := corev1.ContainerRestartPolicyAlways
	pods.Create(t, ns, clustertest.ShellPod("beside", "exec sleep 1000", clustertest.Controller("beside"),
		func(p *corev1.Pod) {
			probe := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{
				Port: intstr.FromInt32(8443),
			}}}
			p.Spec.InitContainers = []corev1.Container{{Name: "agent", Image: "agent:1", RestartPolicy: &always}}
			p.Spec.Containers = append([]corev1.Container{{
				Name: "proxy", Image: "proxy:1", Args: []string{"--upstream=x"}, ReadinessProbe: probe,
			}}, p.Spec.Containers...)
		}))
	pods.Await(t, ns, "beside", "ready", func(p *corev1.Pod) bool {
		s := p.Status.ContainerStatuses
		return clustertest.IsReady(p) && len(s) == 2 && s[0].State.Running != nil && s[0].Ready &&
			p.Status.Phase == corev1.PodRunning && p.Status.InitContainerStatuses[0].State.Running != nil
	})
	first := pods.AwaitRunning(t, "beside", 1)[0]
	if err := node.Kill(ctx, "beside"); err != nil {
		t.Fatal(err)
	}
	if err := node.Start(ctx, "beside"); err != nil {
		t.Fatal(err)
	}
	if second := pods.AwaitRunning(t, "beside", 1)[0]; second.PID == first.PID || second.Container != "main" {
		t.Errorf("started: %+v", second)
	}
}

// An init container that has done its work has not failed, whatever its controller's plan is.
func TestInitContainerOfAController(t *testing.T) {
	ns := pods.Namespace(t)
	pods.Create(t, ns, clustertest.ShellPod("prepared", "exec sleep 1000", clustertest.Controller("prepared"),
		func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{
				{Name: "fails-once", Image: "none",
					Command:      []string{"sh", "-c", "rm /shared/file || ! touch /shared/file"},
					VolumeMounts: []corev1.VolumeMount{{Name: "shared", MountPath: "/shared"}}},
			}
			p.Spec.Volumes = []corev1.Volume{
				{Name: "shared", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			}
		}))
	pods.AwaitRunning(t, "prepared", 1)
	clustertest.Eventually(t, func(context.Context) error {
		all := pods.Processes(t, "prepared")
		if len(all) != 3 || all[0].Planned || all[0].ExitCode != 1 || !all[1].Planned || !all[2].Running() {
			return fmt.Errorf("processes %+v", all)
		}
		return nil
	})
}

func TestInitContainers(t *testing.T) {
	ns := pods.Namespace(t)
	always := corev1.ContainerRestartPolicyAlways
	shared := []corev1.VolumeMount{{Name: "shared", MountPath: "/shared"}}
	pods.Create(t, ns, clustertest.ShellPod("ordered", "cat /shared/file; exit 0", func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{
			{Name: "shared", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		}
		p.Spec.InitContainers = []corev1.Container{
			{Name: "sidecar", Image: "none", Command: []string{"sleep", "1000"}, RestartPolicy: &always},
			{
				Name: "one", Image: "none", Command: []string{"sh", "-c", "echo one >> /shared/file"},
				VolumeMounts: shared,
			},
			{
				Name: "two", Image: "none", Command: []string{"sh", "-c", "echo two >> /shared/file"},
				VolumeMounts: shared,
			},
		}
		p.Spec.Containers[0].VolumeMounts = shared
	}))
	pods.AwaitPhase(t, ns, "ordered", corev1.PodSucceeded)
	if got := pods.Output(t, ns, "ordered"); got != "one\ntwo\n" {
		t.Errorf("output %q", got)
	}
	pods.Create(t, ns, clustertest.ShellPod("broken", "echo never", func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "none", Command: []string{"false"}}}
	}))
	pod := pods.AwaitPhase(t, ns, "broken", corev1.PodFailed)
	if pod.Status.ContainerStatuses[0].State.Waiting == nil {
		t.Errorf("status %+v", pod.Status.ContainerStatuses)
	}
}

func TestReadiness(t *testing.T) {
	t.Parallel() // it waits for delays
	ns := pods.Namespace(t)
	listener, err := net.Listen("tcp4", "0.0.0.0:0") // the probe uses the pod's address
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	probe := func(h corev1.ProbeHandler) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{ProbeHandler: h, PeriodSeconds: 1, FailureThreshold: 1}
		}
	}
	pods.Create(t, ns, clustertest.ShellPod("plain", "exec sleep 1000"))
	pods.Create(t, ns, clustertest.ShellPod("tcp", "exec sleep 1000",
		probe(corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt(port)}})))
	file := filepath.Join(t.TempDir(), "ready")
	pods.Create(t, ns, clustertest.ShellPod("exec", "exec sleep 1000",
		probe(corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"test", "-e", file}}})))

	pods.Await(t, ns, "plain", "ready", clustertest.IsReady)
	pods.Await(t, ns, "tcp", "ready", clustertest.IsReady)
	pod := pods.AwaitPhase(t, ns, "exec", corev1.PodRunning)
	if clustertest.IsReady(pod) {
		t.Error("exec: ready too early")
	}
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	pods.Await(t, ns, "exec", "ready", clustertest.IsReady)
	listener.Close()
	pods.Await(t, ns, "tcp", "not ready any more", func(p *corev1.Pod) bool { return !clustertest.IsReady(p) })
}

// The token works, through the address that the pod is given, and has only the permissions of its service account.
func TestServiceAccount(t *testing.T) {
	ns := pods.Namespace(t)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	pods.Create(t, ns, clustertest.ShellPod("account",
		"echo $KUBERNETES_SERVICE_HOST:$KUBERNETES_SERVICE_PORT; echo $KUBECONFIG > "+file+"; exec sleep 1000",
		clustertest.Controller("account")))
	pods.AwaitOutput(t, ns, "account", "127.0.0.1:")
	var path string
	clustertest.Eventually(t, func(context.Context) error {
		text, err := os.ReadFile(file)
		if path = strings.TrimSpace(string(text)); path == "" {
			return fmt.Errorf("no kubeconfig yet (%v)", err)
		}
		return err
	})
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.TrimSpace(pods.Output(t, ns, "account")); config.Host != "https://"+want {
		t.Errorf("kubeconfig has server %s, environment %s", config.Host, want)
	}
	account := kubernetes.NewForConfigOrDie(config)
	_, err = account.CoreV1().Secrets(ns).List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "system:serviceaccount:"+ns+":default") {
		t.Errorf("list secrets: %v, want: forbidden for the service account", err)
	}
}
