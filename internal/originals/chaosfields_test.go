package originals

import (
	"os"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// outcome is what becomes of a field of chaos-controller.
type outcome string

const (
	same         outcome = "same"      // the same field with the same value
	converted    outcome = "converted" // another field, or another form of the value
	leftOut      outcome = "left out"  // it says nothing about the fault
	refusedField outcome = "refused"   // the fault would be another one without it
)

// original is a field of chaos-controller's specs, as the documentation has it.
type original struct {
	name    string // its path in the spec, with [] after lists
	outcome outcome
	here    string // what it is here; for a refused field, what to write instead, or why it is not possible
}

// disruptionFields are the fields of a Disruption's spec, in the order of its definition.
var disruptionFields = []original{
	{name: "count", outcome: same, here: "`count`"},
	{name: "allowDisruptedTargets", outcome: same, here: "`allowDisruptedTargets`"},
	{name: "selector", outcome: same, here: "`selector`"},
	{name: "advancedSelector[].key", outcome: same, here: "`advancedSelector[].key`"},
	{name: "advancedSelector[].operator", outcome: same, here: "`advancedSelector[].operator`"},
	{name: "advancedSelector[].values", outcome: same, here: "`advancedSelector[].values`"},
	{name: "filter.annotations", outcome: same, here: "`filter.annotations`"},
	{name: "dryRun", outcome: same, here: "`dryRun`"},
	{
		name: "onInit", outcome: refusedField,
		here: "targets are running pods; use a plan with a trigger at the program's first request to the API server",
	},
	{name: "unsafeMode.disableAll", outcome: leftOut, here: "the flags of `trommel-chaos` say what is allowed"},
	{
		name: "unsafeMode.disableCountTooLarge", outcome: leftOut,
		here: "the flags `--max-namespace-share` and `--max-cluster-share` of `trommel-chaos` say what is allowed",
	},
	{
		name: "unsafeMode.disableNeitherHostNorPort", outcome: leftOut,
		here: "the flag `--allow-network-without-hosts` of `trommel-chaos` says what is allowed",
	},
	{
		name: "unsafeMode.disableSpecificContainDisk", outcome: leftOut,
		here: "`containers` may be used with the disk kinds",
	},
	{
		name: "unsafeMode.allowRootDiskFailure", outcome: leftOut,
		here: "the flag `--allow-disk-root` of `trommel-chaos` says what is allowed",
	},
	{
		name: "unsafeMode.config.countTooLarge.namespaceThreshold", outcome: leftOut,
		here: "the flag `--max-namespace-share` of `trommel-chaos` says what is allowed",
	},
	{
		name: "unsafeMode.config.countTooLarge.clusterThreshold", outcome: leftOut,
		here: "the flag `--max-cluster-share` of `trommel-chaos` says what is allowed",
	},
	{name: "staticTargeting", outcome: same, here: "`staticTargeting`"},
	{name: "triggers.inject.notBefore", outcome: same, here: "`triggers.inject.notBefore`; targets are chosen then"},
	{
		name: "triggers.inject.offset", outcome: converted,
		here: "`triggers.inject.offset`, after the creation or `createPods`",
	},
	{
		name: "triggers.createPods.notBefore", outcome: converted,
		here: "`triggers.inject.notBefore`, with the offset of `inject` added",
	},
	{
		name: "triggers.createPods.offset", outcome: converted,
		here: "`triggers.inject.offset`, with that of `inject` added",
	},
	{name: "pulse.activeDuration", outcome: same, here: "`pulse.activeDuration`"},
	{name: "pulse.dormantDuration", outcome: same, here: "`pulse.dormantDuration`"},
	{name: "pulse.initialDelay", outcome: same, here: "`pulse.initialDelay`"},
	{name: "duration", outcome: same, here: "`duration`, from when the first targets are chosen"},
	{name: "maxRuns", outcome: same, here: "`maxRuns`; the disruption then ends"},
	{name: "level", outcome: same, here: "`level`"},
	{name: "containers", outcome: same, here: "`containers`"},

	{name: "network.hosts[].host", outcome: same, here: "`network.hosts[].host`"},
	{name: "network.hosts[].port", outcome: same, here: "`network.hosts[].port`"},
	{name: "network.hosts[].protocol", outcome: same, here: "`network.hosts[].protocol`"},
	{name: "network.hosts[].flow", outcome: same, here: "`network.hosts[].flow`"},
	{name: "network.hosts[].connState", outcome: refusedField, here: connState},
	{name: "network.hosts[].dnsResolver", outcome: refusedField, here: resolver},
	{
		name: "network.hosts[].percentage", outcome: refusedField,
		here: "write a part of the addresses as hosts, or `network.percentage`, the share of packets or connections",
	},
	{name: "network.allowedHosts[].host", outcome: refusedField, here: allowed},
	{name: "network.allowedHosts[].port", outcome: refusedField, here: allowed},
	{name: "network.allowedHosts[].protocol", outcome: refusedField, here: allowed},
	{name: "network.allowedHosts[].flow", outcome: refusedField, here: allowed},
	{name: "network.allowedHosts[].connState", outcome: refusedField, here: allowed},
	{name: "network.allowedHosts[].dnsResolver", outcome: refusedField, here: allowed},
	{name: "network.allowedHosts[].percentage", outcome: refusedField, here: allowed},
	{name: "network.disableDefaultAllowedHosts", outcome: leftOut, here: "no peer is exempt"},
	{name: "network.services[].name", outcome: same, here: "`network.services[].name`"},
	{name: "network.services[].namespace", outcome: same, here: "`network.services[].namespace`"},
	{
		name: "network.services[].ports[].name", outcome: leftOut,
		here: "`network.services[].ports` has numbers only; a port without a number is refused",
	},
	{
		name: "network.services[].ports[].port", outcome: converted,
		here: "`network.services[].ports`, a list of numbers",
	},
	{
		name: "network.services[].percentage", outcome: refusedField,
		here: "write a part of the pods' addresses as hosts, or `network.percentage`, the " +
			"share of packets or connections",
	},
	{name: "network.cloud.aws[].service", outcome: refusedField, here: cloud},
	{name: "network.cloud.aws[].protocol", outcome: refusedField, here: cloud},
	{name: "network.cloud.aws[].flow", outcome: refusedField, here: cloud},
	{name: "network.cloud.aws[].connState", outcome: refusedField, here: cloud},
	{name: "network.cloud.gcp[].service", outcome: refusedField, here: cloud},
	{name: "network.cloud.gcp[].protocol", outcome: refusedField, here: cloud},
	{name: "network.cloud.gcp[].flow", outcome: refusedField, here: cloud},
	{name: "network.cloud.gcp[].connState", outcome: refusedField, here: cloud},
	{name: "network.cloud.datadog[].service", outcome: refusedField, here: cloud},
	{name: "network.cloud.datadog[].protocol", outcome: refusedField, here: cloud},
	{name: "network.cloud.datadog[].flow", outcome: refusedField, here: cloud},
	{name: "network.cloud.datadog[].connState", outcome: refusedField, here: cloud},
	{name: "network.drop", outcome: same, here: "`network.drop`"},
	{name: "network.duplicate", outcome: same, here: "`network.duplicate`"},
	{name: "network.corrupt", outcome: same, here: "`network.corrupt`"},
	{name: "network.delay", outcome: converted, here: "`network.delay`, a duration (`100ms`)"},
	{
		name: "network.delayJitter", outcome: converted,
		here: "`network.delayJitter`, a duration instead of percent of the delay; without it, 10 % as there",
	},
	{name: "network.bandwidthLimit", outcome: same, here: "`network.bandwidthLimit`"},
	{name: "network.http.methods", outcome: same, here: "`network.http.methods`"},
	{name: "network.http.paths", outcome: same, here: "`network.http.paths`"},

	{
		name: "nodeFailure.shutdown", outcome: leftOut,
		here: "`nodeFailure.mode` is `notReady`; write `gone` if the Node is to be deleted",
	},
	{
		name: "containerFailure.forced", outcome: converted,
		here: "`containerFailure.signal`: `KILL` for true, `TERM` for false",
	},
	{
		name: "cpuPressure.count", outcome: converted,
		here: "`cpuPressure.load`, percent of all processors; a number of processors is refused: write its share",
	},
	{name: "memoryPressure.targetPercent", outcome: converted, here: "`memoryPressure.target`, a number"},
	{name: "memoryPressure.rampDuration", outcome: converted, here: "`memoryPressure.ramp`"},
	{name: "diskPressure.path", outcome: same, here: "`diskPressure.path`"},
	{name: "diskPressure.throttling.readBytesPerSec", outcome: converted, here: "`diskPressure.readBytesPerSecond`"},
	{name: "diskPressure.throttling.writeBytesPerSec", outcome: converted, here: "`diskPressure.writeBytesPerSecond`"},
	{name: "diskFailure.paths", outcome: same, here: "`diskFailure.paths`"},
	{
		name: "diskFailure.openat.exitCode", outcome: converted,
		here: "`diskFailure.error`; `ENOENT` without it; other codes than those of `error` are refused",
	},
	{name: "diskFailure.probability", outcome: converted, here: "`diskFailure.percentage`, a number"},
	{name: "grpc.port", outcome: same, here: "`grpc.port`"},
	{name: "grpc.endpoints[].endpoint", outcome: converted, here: "`grpc.endpoints[].method`"},
	{
		name: "grpc.endpoints[].error", outcome: same,
		here: "`grpc.endpoints[].error`; `OK` is refused: write `override: empty`",
	},
	{name: "grpc.endpoints[].override", outcome: converted, here: "`grpc.endpoints[].override`: `empty` for `{}`"},
	{
		name: "grpc.endpoints[].queryPercent", outcome: converted,
		here: "`grpc.endpoints[].percentage`; those without one share the rest, as there",
	},
	{name: "dns.records[].hostname", outcome: converted, here: "`dns.records[].name`"},
	{
		name: "dns.records[].record.type", outcome: converted,
		here: "nothing: addresses of both types are one list; other types than `A` and `AAAA` are refused",
	},
	{
		name: "dns.records[].record.value", outcome: converted,
		here: "`dns.records[].addresses`, or `fault` (`nxdomain`, `servfail`, `drop`, " +
			"`random`), for all types of queries",
	},
	{name: "dns.records[].record.ttl", outcome: leftOut, here: "the TTL is 0"},
	{name: "dns.port", outcome: refusedField, here: "queries to port 53 are disturbed"},
	{name: "dns.protocol", outcome: refusedField, here: "both UDP and TCP are disturbed"},
	{
		name: "podReplacement.deleteStorage", outcome: converted,
		here: "`podReplacement.deleteClaims`; it is true without it, as there",
	},
	{name: "podReplacement.forceDelete", outcome: converted, here: "`podReplacement.gracePeriod: 0s`"},
	{name: "podReplacement.gracePeriodSeconds", outcome: converted, here: "`podReplacement.gracePeriod`, a duration"},

	{name: "reporting.slackChannel", outcome: leftOut, here: reporting},
	{name: "reporting.purpose", outcome: leftOut, here: reporting},
	{name: "reporting.minNotificationType", outcome: leftOut, here: reporting},
	{name: "reporting.slackUserEmail", outcome: leftOut, here: reporting},
}

const (
	connState = "connections are disturbed whatever their state; `apiFault` and `network.http` disturb single requests"
	resolver  = "names are looked up as the target does; write addresses instead of the name"
	allowed   = "write the peers that are disturbed into `network.hosts` and `network.services`"
	cloud     = "write the service's addresses into `network.hosts`"
	reporting = "the flag `--notify` of `trommel-chaos` reports all disruptions"
)

// seriesFields are the fields of the specs of DisruptionCrons and DisruptionRollouts, beside disruptionTemplate.
var seriesFields = []original{
	{name: "schedule", outcome: same, here: "`schedule`, in UTC"},
	{name: "paused", outcome: converted, here: "`suspend`"},
	{
		name: "delayedStartTolerance", outcome: converted,
		here: "`delayedStartTolerance` of a cron; left out of a rollout",
	},
	{
		name: "targetResource.kind", outcome: converted,
		here: "`target.kind` of a rollout; nothing for a cron: write the labels of its pods " +
			"into the template's `selector`",
	},
	{
		name: "targetResource.name", outcome: converted,
		here: "`target.name` of a rollout; nothing for a cron: write the labels of its pods " +
			"into the template's `selector`",
	},
	{name: "reporting.slackChannel", outcome: leftOut, here: reporting},
	{name: "reporting.purpose", outcome: leftOut, here: reporting},
	{name: "reporting.minNotificationType", outcome: leftOut, here: reporting},
	{name: "reporting.slackUserEmail", outcome: leftOut, here: reporting},
}

// values are examples of the values of fields that are not texts.
var values = map[string]string{
	"count": "50%", "allowDisruptedTargets": "true", "selector": "{a: b}", "advancedSelector[].values": "[x]",
	"filter.annotations": "{a: b}", "dryRun": "true", "onInit": "true", "staticTargeting": "true", "maxRuns": "3",
	"unsafeMode.disableAll": "true", "unsafeMode.disableCountTooLarge": "true",
	"unsafeMode.disableNeitherHostNorPort": "true", "unsafeMode.disableSpecificContainDisk": "true",
	"unsafeMode.allowRootDiskFailure": "true", "unsafeMode.config.countTooLarge.namespaceThreshold": "90",
	"unsafeMode.config.countTooLarge.clusterThreshold": "90",
	"triggers.inject.notBefore":                        "2030-01-01T00:00:00Z", "triggers.inject.offset": "1m",
	"triggers.createPods.notBefore": "2030-01-01T00:00:00Z", "triggers.createPods.offset": "1m",
	"pulse.activeDuration": "1m", "pulse.dormantDuration": "1m", "pulse.initialDelay": "1m", "duration": "1m",
	"containers": "[x]", "network.hosts[].port": "80", "network.hosts[].percentage": "10",
	"network.allowedHosts[].port": "80", "network.allowedHosts[].percentage": "10",
	"network.disableDefaultAllowedHosts": "true", "network.services[].ports[].port": "80",
	"network.services[].percentage": "10", "network.drop": "10", "network.duplicate": "10", "network.corrupt": "10",
	"network.delay": "10", "network.delayJitter": "10", "network.bandwidthLimit": "1000000",
	"network.http.methods": "[get]", "network.http.paths": "[/a]", "nodeFailure.shutdown": "true",
	"containerFailure.forced": "true", "cpuPressure.count": "50%", "memoryPressure.targetPercent": "50%",
	"memoryPressure.rampDuration": "1m", "diskPressure.throttling.readBytesPerSec": "1024",
	"diskPressure.throttling.writeBytesPerSec": "1024", "diskFailure.paths": "[/a]",
	"diskFailure.openat.exitCode": "EACCES", "diskFailure.probability": "50%", "grpc.port": "80",
	"grpc.endpoints[].queryPercent": "10", "grpc.endpoints[].error": "NOT_FOUND",
	"dns.records[].record.type": "A", "dns.records[].record.ttl": "60", "dns.port": "5353", "dns.protocol": "udp",
	"podReplacement.deleteStorage": "false", "podReplacement.forceDelete": "true",
	"podReplacement.gracePeriodSeconds": "30",
}

// together are the fields that are tested with others, on the left without them and on the right with them.
var together = map[string][2]string{
	"network.delayJitter": {"network: {delay: 100}", "network: {delay: 100, delayJitter: 20}"},
	"memoryPressure.rampDuration": {
		"memoryPressure: {targetPercent: 5%}",
		"memoryPressure: {targetPercent: 5%, rampDuration: 1m}",
	},
	"dns.records[].hostname": {
		"dns: {records: []}",
		"dns: {records: [{hostname: a, record: {type: A, value: 192.0.2.1}}]}",
	},
	"dns.records[].record.type": {
		"dns: {records: []}",
		"dns: {records: [{hostname: a, record: {type: A, value: 192.0.2.1}}]}",
	},
	"dns.records[].record.value": {
		"dns: {records: []}",
		"dns: {records: [{hostname: a, record: {type: A, value: DROP}}]}",
	},
	"dns.records[].record.ttl": {"dns: {records: [{hostname: a, record: {type: A, value: DROP}}]}",
		"dns: {records: [{hostname: a, record: {type: A, value: DROP, ttl: 60}}]}"},
	"network.services[].ports[].name": {"network: {services: [{name: a, namespace: b, ports: [{port: 80}]}]}",
		"network: {services: [{name: a, namespace: b, ports: [{name: web, port: 80}]}]}"},
	"containerFailure.forced":      {"containerFailure: {}", "containerFailure: {forced: true}"},
	"nodeFailure.shutdown":         {"nodeFailure: {}", "nodeFailure: {shutdown: true}"},
	"podReplacement.deleteStorage": {"podReplacement: {}", "podReplacement: {deleteStorage: false}"},
	"grpc.endpoints[].override": {
		"grpc: {port: 1}",
		`grpc: {port: 1, endpoints: [{endpoint: /a/b, override: "{}"}]}`,
	},
}

// with is a spec in which a field has a value.
func with(t *testing.T, name, value string) string {
	t.Helper()
	var leaf any
	if err := yaml.Unmarshal([]byte(value), &leaf); err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(name, ".")
	slices.Reverse(parts)
	for _, part := range parts {
		if strings.HasSuffix(part, "[]") {
			leaf = []any{leaf}
		}
		leaf = map[string]any{strings.TrimSuffix(part, "[]"): leaf}
	}
	text, err := yaml.Marshal(leaf)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The outcome of each field is the one that is documented.
func TestEachField(t *testing.T) {
	for _, f := range disruptionFields {
		t.Run(f.name, func(t *testing.T) {
			value := "text"
			if v, ok := values[f.name]; ok {
				value = v
			}
			before, after := with(t, f.name, "null"), with(t, f.name, value)
			if pair, ok := together[f.name]; ok {
				before, after = pair[0], pair[1]
			}
			bare, _, _ := Convert("a.yaml", spec(before))
			text, _, err := Convert("a.yaml", spec(after))
			switch {
			case f.outcome == refusedField:
				if err == nil {
					t.Errorf("it is not refused:\n%s", text)
				}
			case err != nil:
				t.Error(err)
			case f.outcome == leftOut && string(text) != string(bare):
				t.Errorf("it changes\n%s to\n%s", bare, text)
			case f.outcome != leftOut && string(text) == string(bare):
				t.Errorf("it has no effect:\n%s", text)
			}
		})
	}
}

// Each field of chaos-controller's definitions is in the tables, and no other one.
func TestAllFieldsOfChaosController(t *testing.T) {
	text, err := os.ReadFile("testdata/chaos-controller-fields.txt")
	if err != nil {
		t.Fatal(err)
	}
	var known, theirs []string
	for _, f := range disruptionFields {
		known = append(known, "Disruption "+f.name)
	}
	for _, f := range seriesFields {
		known = append(known, "DisruptionCron "+f.name)
		if f.name == "delayedStartTolerance" || strings.HasPrefix(f.name, "targetResource.") {
			known = append(known, "DisruptionRollout "+f.name)
		}
	}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "#") {
			theirs = append(theirs, line)
		}
	}
	for _, name := range theirs {
		if !slices.Contains(known, name) {
			t.Errorf("%s is not in the table", name)
		}
	}
	for _, name := range known {
		if !slices.Contains(theirs, name) {
			t.Errorf("chaos-controller has no %s", name)
		}
	}
}

// The documentation lists all fields, with what becomes of them.
func TestDocumentedFields(t *testing.T) {
	const page = "../../docs/from-chaos-controller.md"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	for heading, fields := range map[string][]original{
		"## Fields of a Disruption\n":                           disruptionFields,
		"## Fields of DisruptionCrons and DisruptionRollouts\n": seriesFields,
	} {
		_, section, _ := strings.Cut(string(text), heading)
		section, _, _ = strings.Cut(section, "\n## ")
		_, section, found := strings.Cut(section, "\n- ")
		section, _, _ = strings.Cut(section, "\n\n")
		if want := documented(fields); !found || strings.TrimSpace("- "+section) != strings.TrimSpace(want) {
			t.Errorf("%s: the section %q must have the list\n%s", page, strings.TrimSpace(heading), want)
		}
	}
}

// documented is a list of fields. Neighbours about which the same is said are one item.
func documented(fields []original) string {
	var text strings.Builder
	isSame := func(f original) bool {
		return f.outcome == same && f.here == "`"+f.name+"`"
	}
	for i := 0; i < len(fields); {
		f, names := fields[i], []string{}
		for i < len(fields) && isSame(fields[i]) {
			names = append(names, "`"+fields[i].name+"`")
			i++
		}
		if len(names) > 0 {
			text.WriteString(wrap("- " + strings.Join(names, ", ") + ": the same"))
			continue
		}
		for i < len(fields) && fields[i].here == f.here && fields[i].outcome == f.outcome {
			names = append(names, fields[i].name)
			i++
		}
		item := "`" + common(names) + "`"
		switch f.outcome {
		case refusedField, leftOut:
			item += " (" + string(f.outcome) + "): " + f.here
		default:
			item += ": " + f.here
		}
		text.WriteString(wrap("- " + item))
	}
	return text.String()
}

// common is the path that names have in common.
func common(names []string) string {
	prefix := names[0]
	for _, name := range names[1:] {
		for name != prefix && !strings.HasPrefix(name, prefix+".") && !strings.HasPrefix(name, prefix+"[].") {
			prefix = strings.TrimSuffix(prefix[:strings.LastIndexByte(prefix, '.')], "[]")
		}
	}
	return prefix
}

// wrap breaks the lines of an item.
func wrap(item string) string {
	const width = 100
	var text, line strings.Builder
	for word := range strings.FieldsSeq(item) {
		if line.Len() > 0 && line.Len()+1+len(word) > width {
			text.WriteString(line.String() + "\n")
			line.Reset()
			line.WriteString(" ")
		}
		if line.Len() > 0 {
			line.WriteString(" ")
		}
		line.WriteString(word)
	}
	return text.String() + line.String() + "\n"
}
