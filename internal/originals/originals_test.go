package originals

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/trommel-dev/trommel/internal/testing/golden"
)

// TestExamples converts the examples of the projects. The golden files have the notes and errors, and what was written.
func TestExamples(t *testing.T) {
	for project, most := range map[string]int{"cyclops": 9, "chaos-controller": 54} {
		files, err := filepath.Glob("../../testdata/originals/" + project + "/*.yaml")
		if err != nil || len(files) < most-5 {
			t.Fatalf("%d files, %v", len(files), err)
		}
		for _, file := range files {
			name := filepath.Base(file)
			t.Run(project+"/"+name, func(t *testing.T) {
				data, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}
				if detected := Detect(data); detected != (name != "demo.yaml") {
					t.Errorf("detected: %t", detected)
				}
				text, notes, err := Convert(name, data)
				var out bytes.Buffer
				for _, note := range notes {
					fmt.Fprintln(&out, "# note:", note)
				}
				if err != nil {
					for line := range strings.Lines(err.Error()) {
						fmt.Fprintln(&out, "# error:", strings.TrimSpace(line))
					}
				} else {
					out.Write(text)
				}
				golden.Compare(t, filepath.Join("testdata", project, name), out.Bytes())
			})
		}
	}
}

// spec is a Disruption with a spec.
func spec(fields string) []byte {
	return []byte("apiVersion: chaos.datadoghq.com/v1beta1\nkind: Disruption\nmetadata: {name: a}\nspec:\n  " +
		strings.ReplaceAll(strings.TrimSpace(fields), "\n", "\n  ") + "\n")
}

func TestDisruptions(t *testing.T) {
	for name, tt := range map[string]struct{ from, want, err string }{
		"a delay has a jitter": {"network: {delay: 1000, hosts: [{host: a}]}",
			"network: {hosts: [{host: a}], delay: 1000ms, delayJitter: 100ms}", ""},
		"another jitter": {"network: {delay: 200, delayJitter: 5, hosts: [{host: a}]}",
			"network: {hosts: [{host: a}], delay: 200ms, delayJitter: 10ms}", ""},
		"a small one": {
			"network: {delay: 3, hosts: [{host: a}]}",
			"network: {hosts: [{host: a}], delay: 3ms, delayJitter: 1ms}",
			"",
		},
		"no delay": {"network: {delay: 0, drop: 5, services: []}", "network: {services: [], drop: 5}", ""},
		"upper case": {
			"network: {drop: 5, hosts: [{protocol: TCP, flow: Ingress}]}",
			"network: {hosts: [{protocol: tcp, flow: ingress}], drop: 5}",
			"",
		},
		"ports by name": {
			"network: {drop: 5, services: [{name: a, namespace: b, ports: [{name: web}]}]}",
			"",
			"a.yaml:5:65: spec.network.services[0].ports[0] has no port: write its number",
		},
		"some addresses": {"network: {drop: 5, hosts: [{host: a, percentage: 50}]}", "",
			"a.yaml:5:52: spec.network.hosts[0].percentage has no equal: all addresses of a host are " +
				"disturbed; name some addresses as hosts"},
		"all addresses": {
			"network: {drop: 5, hosts: [{host: a, percentage: 100}]}",
			"network: {hosts: [{host: a}], drop: 5}",
			"",
		},
		"A and AAAA": {"dns: {records: [{hostname: a, record: {type: A, value: \"192.0.2.1, 192.0.2.2\"}}, " +
			"{hostname: a, record: {type: AAAA, value: \"2001:db8::1\", ttl: 3}}]}",
			"dns: {records: [{name: a, addresses: [192.0.2.1, 192.0.2.2, \"2001:db8::1\"]}]}", ""},
		"a fault": {"dns: {records: [{hostname: a, record: {type: A, value: NXDOMAIN}}, {hostname: a, record: " +
			"{type: AAAA, value: NXDOMAIN}}], port: 53}",
			"dns: {records: [{name: a, fault: nxdomain}]}", ""},
		"two answers": {"dns: {records: [{hostname: a, record: {type: A, value: DROP}}, {hostname: a, record: " +
			"{type: AAAA, value: \"::1\"}}]}", "",
			"a.yaml:5:66: spec.dns.records[1]: a has one answer, for A and AAAA; write one record for it"},
		"a CNAME": {"dns: {records: [{hostname: a, record: {type: CNAME, value: b}}]}", "",
			"a.yaml:5:19: spec.dns.records[0] has the type CNAME: only answers with addresses (A, AAAA) are changed"},
		"a processor": {"cpuPressure: {count: 2}", "",
			"a.yaml:5:24: spec.cpuPressure.count is not a percentage such as 50%. There is no number of " +
				"processors: write the share of the target's processors as load"},
		"half of the processors": {"cpuPressure: {count: 50%}", "cpuPressure: {load: 50}", ""},
		"memory": {
			"memoryPressure: {targetPercent: 76%, rampDuration: 10m}",
			"memoryPressure: {target: 76, ramp: 10m}",
			"",
		},
		"a failure of a disk": {
			"diskFailure: {paths: [/a], probability: 30%}",
			"diskFailure: {paths: [/a], percentage: 30, error: ENOENT}",
			"",
		},
		"containers":         {"containerFailure: {}", "containerFailure: {signal: TERM}", ""},
		"containers, forced": {"containerFailure: {forced: true}", "containerFailure: {signal: KILL}", ""},
		"claims":             {"podReplacement: {}", "podReplacement: {deleteClaims: true}", ""},
		"a grace period": {
			"podReplacement: {deleteStorage: false, gracePeriodSeconds: 30}",
			"podReplacement: {gracePeriod: 30s}",
			"",
		},
		"by force": {
			"podReplacement: {deleteStorage: false, gracePeriodSeconds: 30, forceDelete: true}",
			"podReplacement: {gracePeriod: 0s}",
			"",
		},
		"alterations share the calls of a method": {
			"grpc: {port: 1, endpoints: [{endpoint: /a/b, error: UNKNOWN, queryPercent: 40}, {endpoint: /a/b, " +
				"override: \"{}\"}, {endpoint: /a/b, error: ABORTED}, {endpoint: /c/d, error: ABORTED}]}",
			"grpc: {port: 1, endpoints: [{method: /a/b, error: UNKNOWN, percentage: 40}, {method: /a/b, override: " +
				"empty, percentage: 30}, {method: /a/b, error: ABORTED, percentage: 30}, {method: /c/d, " +
				"error: ABORTED}]}",
			"",
		},
		"nanoseconds": {"duration: 60000000000", "duration: 1m0s", ""},
		"a strange time": {
			"duration: 1 hour",
			"",
			"a.yaml:5:13: spec.duration is not a duration such as 90s, 15m or 1h30m",
		},
		"after the targets": {
			"triggers: {createPods: {offset: 1m}, inject: {offset: 30s}}",
			"triggers: {inject: {offset: 1m30s}}",
			"",
		},
		"at a time": {"triggers: {createPods: {notBefore: \"2026-01-02T03:04:05Z\"}, inject: {offset: 30s}}",
			"triggers: {inject: {notBefore: \"2026-01-02T03:04:35Z\"}}", ""},
		"targets only": {"triggers: {createPods: {offset: 1m}}", "triggers: {inject: {offset: 1m}}", ""},
		"at a time only": {"triggers: {createPods: {offset: 1m}, inject: {notBefore: \"2026-01-02T03:04:05Z\"}}",
			"triggers: {inject: {notBefore: \"2026-01-02T03:04:05Z\"}}", ""},
		"a null":           {"pulse: null", "{}", ""},
		"an unknown field": {"netwrok: {}", "", `a.yaml:5:3: unknown field spec.netwrok; did you mean "network"?`},
		"on init": {
			"onInit: true",
			"",
			"a.yaml:5:11: spec.onInit has no equal: targets are running pods; in a plan, use a trigger at the " +
				"first request of the program",
		},
	} {
		t.Run(name, func(t *testing.T) {
			text, _, err := Convert("a.yaml", spec(tt.from))
			if tt.err != "" || err != nil {
				if err == nil || err.Error() != tt.err {
					t.Errorf("error %v, want %s", err, tt.err)
				}
				return
			}
			var got struct {
				APIVersion string `yaml:"apiVersion"`
				Spec       any
			}
			var want any
			if err := yaml.Unmarshal(text, &got); err != nil {
				t.Fatal(err)
			}
			if err := yaml.Unmarshal([]byte(tt.want), &want); err != nil {
				t.Fatal(err)
			}
			if fmt.Sprint(got.Spec) != fmt.Sprint(want) || got.APIVersion != chaosVersion {
				t.Errorf("%s, want %s", text, tt.want)
			}
		})
	}
}

// Other objects of a file stay as they are, and kinds that cannot be converted are mistakes.
func TestOtherObjects(t *testing.T) {
	const config = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a # a comment\n"
	text, _, err := Convert("a.yaml", []byte("---\n"+config+"---\n# nothing\n---\n"+string(spec("duration: 1m"))))
	if err != nil || !strings.HasPrefix(string(text), config+"---\napiVersion: chaos.trommel.dev/v1alpha1\n") {
		t.Errorf("%v\n%s", err, text)
	}
	_, _, err = Convert("a.yaml", []byte(string(spec("duration: 1m"))+"---\napiVersion: "+
		"atlassian.com/v1\nkind: CycleNodeStatus\n"))
	if err == nil || err.Error() != "a.yaml:7:1: atlassian.com/v1 CycleNodeStatus is not converted" {
		t.Error(err)
	}
	if _, _, err := Convert("a.yaml", []byte("a: [")); err == nil || Detect([]byte("a: [")) {
		t.Error("it is not YAML")
	}
}
