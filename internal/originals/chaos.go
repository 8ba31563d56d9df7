package originals

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"
)

const chaosVersion = "chaos.trommel.dev/v1alpha1"

const (
	noReporting = "the operator of the controllers chooses who receives events (trommel-chaos --notify-url-file)"
	wholeHosts  = "all addresses of a host are disturbed; name some addresses as hosts"
)

// disruptionSpec are the fields of a disruption.
var disruptionSpec = fields{
	"level": lower("level"), "selector": as("selector"), "advancedSelector": as("advancedSelector"),
	"filter": object("filter", fields{"annotations": as("annotations")}), "containers": as("containers"),
	"count": as("count"), "staticTargeting": given("staticTargeting"),
	"allowDisruptedTargets": given("allowDisruptedTargets"), "dryRun": given("dryRun"), "maxRuns": given("maxRuns"),
	"duration": duration("duration"), "triggers": triggers,
	"pulse": object("pulse", fields{
		"initialDelay": duration("initialDelay"), "activeDuration": duration("activeDuration"),
		"dormantDuration": duration("dormantDuration"),
	}),
	"onInit": refusedUnless("targets are running pods; in a plan, use a trigger at the first request of the program",
		"false"),
	"unsafeMode": noted("the operator of the controllers sets the safety nets, by flags of trommel-chaos"),
	"reporting":  noted(noReporting),

	"network": network,
	"dns": object("dns", fields{
		"records":  dnsRecords,
		"port":     refusedUnless("queries to port 53 are answered", "0", "53"),
		"protocol": refusedUnless("queries by UDP and TCP are answered", "", "both"),
	}),
	"cpuPressure": object("cpuPressure", fields{
		"count": percent("load", ". There is no number of processors: write the share of the target's "+
			"processors as load"),
	}),
	"memoryPressure": object("memoryPressure", fields{
		"targetPercent": percent("target", ""), "rampDuration": duration("ramp"),
	}),
	"diskPressure": object("diskPressure", fields{
		"path": as("path"), "throttling": within(fields{
			"readBytesPerSec": as("readBytesPerSecond"), "writeBytesPerSec": as("writeBytesPerSecond"),
		}),
	}),
	"diskFailure": diskFailure, "containerFailure": containerFailure,
	"nodeFailure": func(c *converter, at string, in *yaml.Node, out *mapping) {
		c.notef(in, "%s: the machine goes on, and its node is not ready; mode: gone deletes the Node", at)
		object("nodeFailure", fields{"shutdown": func(*converter, string, *yaml.Node, *mapping) {}})(c, at, in, out)
	},
	"podReplacement": podReplacement,
	"grpc":           object("grpc", fields{"port": as("port"), "endpoints": grpcEndpoints}),
}

func (c *converter) disruption(in *yaml.Node) *yaml.Node {
	return c.converted(in, chaosVersion, func(c *converter, at string, in *yaml.Node, out *mapping) {
		object("spec", disruptionSpec)(c, at, in, out)
		if n := entry(in, "network"); n != nil && entry(n, "hosts") == nil && entry(n, "services") == nil {
			c.notef(n, "%s.network without hosts and services is refused, unless the operator of the controllers "+
				"allows it (trommel-chaos --allow-network-without-hosts)", at)
		}
	})
}

// template is the disruption of a DisruptionCron or DisruptionRollout. There, its targets are the pods of a workload;
// here they have labels, which only the cluster knows.
func template(c *converter, at string, in *yaml.Node, out *mapping) {
	if entry(in, "selector") == nil && entry(in, "advancedSelector") == nil {
		c.errorf(in, "%s has no selector: add one with the labels of the pods of targetResource", at)
	}
	object("disruption", disruptionSpec)(c, at, in, out)
}

func (c *converter) disruptionCron(in *yaml.Node) *yaml.Node {
	return c.converted(in, chaosVersion, object("spec", fields{
		"schedule": as("schedule"), "paused": given("suspend"),
		"delayedStartTolerance": duration("delayedStartTolerance"),
		"targetResource":        noted("the targets are the pods that the selector selects"),
		"disruptionTemplate":    template, "reporting": noted(noReporting),
	}))
}

func (c *converter) disruptionRollout(in *yaml.Node) *yaml.Node {
	return c.converted(in, chaosVersion, object("spec", fields{
		"targetResource": object("target", fields{
			"name": as("name"), "kind": func(c *converter, at string, in *yaml.Node, out *mapping) {
				switch strings.ToLower(in.Value) {
				case "deployment":
					out.set("kind", text("Deployment"))
				case "statefulset":
					out.set("kind", text("StatefulSet"))
				default:
					c.errorf(in, "%s is neither deployment nor statefulset", at)
				}
			},
		}),
		"delayedStartTolerance": noted("the disruption is created when a new version is seen, or when the previous " +
			"disruption of the rollout has ended"),
		"disruptionTemplate": template,
	}))
}

// triggers have one moment here. There, targets are chosen at createPods and disrupted at inject; here both happen at
// inject.
func triggers(c *converter, at string, in *yaml.Node, out *mapping) {
	trigger := fields{
		"notBefore": as("notBefore"), "offset": duration("offset"),
	}
	inject, create := newMapping(), newMapping()
	fields{
		"inject":     func(c *converter, at string, in *yaml.Node, _ *mapping) { trigger.convert(c, at, in, inject) },
		"createPods": func(c *converter, at string, in *yaml.Node, _ *mapping) { trigger.convert(c, at, in, create) },
	}.convert(c, at, in, newMapping())
	if !create.empty() {
		c.notef(in, "%s.createPods: targets are chosen when the injection begins", at)
		inject = sum(create, inject)
	}
	if inject.empty() {
		return
	}
	outer := newMapping()
	outer.set("inject", inject.node)
	out.set("triggers", outer.node)
}

// sum is the moment of injection: inject, whose offset begins at create.
func sum(create, inject *mapping) *mapping {
	offset := value(inject.node, "offset")
	if inject.empty() || entry(inject.node, "notBefore") == nil && offset == "" {
		return create
	}
	later, err := time.ParseDuration(offset)
	if err != nil {
		return inject // a point in time
	}
	out := newMapping()
	if first, err := time.ParseDuration(value(create.node, "offset")); err == nil {
		out.set("offset", text((first + later).String()))
	} else if at, err := time.Parse(time.RFC3339, value(create.node, "notBefore")); err == nil {
		out.set("notBefore", text(at.Add(later).Format(time.RFC3339)))
	}
	return out
}

func network(c *converter, at string, in *yaml.Node, out *mapping) {
	host := fields{
		"host": given("host"), "port": given("port"), "protocol": lower("protocol"), "flow": lower("flow"),
		"connState": refusedUnless("new and established connections are disturbed", "", "all"),
		"dnsResolver": refusedUnless("names are looked up with the target's own /etc/resolv.conf; write addresses "+
			"as hosts", "", "pod", "pod-fallback-node"),
		"percentage": refusedUnless(wholeHosts, "100"),
	}
	n := newMapping()
	fields{
		"hosts": list("hosts", host),
		"allowedHosts": refused("only the given hosts and services are disturbed; name those, without the " +
			"allowed ones"),
		"disableDefaultAllowedHosts": func(c *converter, at string, in *yaml.Node, out *mapping) {
			if in.Value == "true" {
				noted("no peer is exempt")(c, at, in, out)
			}
		},
		"services": list("services", fields{
			"name": as("name"), "namespace": as("namespace"), "ports": servicePorts,
			"percentage": refusedUnless("all endpoints of a service are disturbed; name some pods' addresses as "+
				"hosts", "100"),
		}),
		"cloud": refused("addresses of cloud services come from the Internet; write them as hosts, such as " +
			"{host: 192.0.2.0/24, port: 443}"),
		"drop": given("drop"), "duplicate": given("duplicate"), "corrupt": given("corrupt"),
		"bandwidthLimit": given("bandwidthLimit"), "delay": func(*converter, string, *yaml.Node, *mapping) {},
		"delayJitter": func(*converter, string, *yaml.Node, *mapping) {},
		"http":        object("http", fields{"methods": as("methods"), "paths": as("paths")}),
	}.convert(c, at, in, n)
	c.delay(at, in, n)
	out.set("network", n.node)
}

// delay converts a delay in milliseconds, and a jitter in percent of it, which is 10 if it is not given.
func (c *converter) delay(at string, in *yaml.Node, out *mapping) {
	d := entry(in, "delay")
	if d == nil || d.Value == "0" {
		return
	}
	delay, ok := c.integer(at+".delay", d)
	if !ok {
		return
	}
	percent := int64(10)
	if j := entry(in, "delayJitter"); j != nil && j.Value != "0" {
		if percent, ok = c.integer(at+".delayJitter", j); !ok {
			return
		}
	}
	out.set("delay", text(fmt.Sprintf("%dms", delay)))
	out.set("delayJitter", text(fmt.Sprintf("%dms", max(delay*percent/100, 1))))
}

func servicePorts(c *converter, at string, in *yaml.Node, out *mapping) {
	l := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Style: yaml.FlowStyle}
	for i, item := range in.Content {
		item = deref(item)
		port := item // a number, as in an example, or an object
		if item.Kind == yaml.MappingNode {
			port = entry(item, "port")
		}
		if port == nil {
			c.errorf(item, "%s[%d] has no port: write its number", at, i)
			continue
		}
		if n, ok := c.integer(fmt.Sprintf("%s[%d].port", at, i), port); ok {
			l.Content = append(l.Content, number(n))
		}
	}
	out.set("ports", l)
}

// dnsRecords has one record for a name, with the addresses of its A and AAAA records.
func dnsRecords(c *converter, at string, in *yaml.Node, out *mapping) {
	records := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq"}
	byName := map[string]*mapping{}
	for i, item := range in.Content {
		at, item := fmt.Sprintf("%s[%d]", at, i), deref(item)
		var name, kind, answer string
		fields{
			"hostname": func(_ *converter, _ string, in *yaml.Node, _ *mapping) { name = in.Value },
			"record": within(fields{
				"type":  func(_ *converter, _ string, in *yaml.Node, _ *mapping) { kind = strings.ToUpper(in.Value) },
				"value": func(_ *converter, _ string, in *yaml.Node, _ *mapping) { answer = in.Value },
				"ttl":   func(*converter, string, *yaml.Node, *mapping) {}, // answers have a TTL of 0
			}),
		}.convert(c, at, item, newMapping())
		if kind != "A" && kind != "AAAA" {
			c.errorf(item, "%s has the type %s: only answers with addresses (A, AAAA) are changed", at, kind)
			continue
		}
		r, before := byName[name], byName[name] != nil
		if !before {
			r = newMapping()
			r.set("name", text(name))
			byName[name] = r
			records.Content = append(records.Content, r.node)
		}
		fault := strings.ToLower(answer)
		switch addresses := entry(r.node, "addresses"); {
		case (fault == "nxdomain" || fault == "servfail" || fault == "drop" || fault == "random") && addresses == nil &&
			(!before || value(r.node, "fault") == fault):
			r.set("fault", text(fault))
		case fault == "nxdomain" || fault == "servfail" || fault == "drop" || fault == "random" ||
			value(r.node, "fault") != "":
			c.errorf(item, "%s: %s has one answer, for A and AAAA; write one record for it", at, name)
		default:
			if addresses == nil {
				addresses = &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Style: yaml.FlowStyle}
				r.set("addresses", addresses)
			}
			for a := range strings.SplitSeq(answer, ",") {
				addresses.Content = append(addresses.Content, text(strings.TrimSpace(a)))
			}
		}
	}
	out.set("records", records)
}

func diskFailure(c *converter, at string, in *yaml.Node, out *mapping) {
	d := newMapping()
	fields{
		"paths": as("paths"), "probability": percent("percentage", ""),
		"openat": within(fields{"exitCode": as("error")}),
	}.convert(c, at, in, d)
	if entry(d.node, "error") == nil {
		d.set("error", text("ENOENT")) // the original's default
	}
	out.set("diskFailure", d.node)
}

func containerFailure(c *converter, at string, in *yaml.Node, out *mapping) {
	failure, signal := newMapping(), "TERM"
	fields{"forced": func(_ *converter, _ string, in *yaml.Node, _ *mapping) {
		if in.Value == "true" {
			signal = "KILL"
		}
	}}.convert(c, at, in, failure)
	failure.set("signal", text(signal))
	out.set("containerFailure", failure.node)
}

func podReplacement(c *converter, at string, in *yaml.Node, out *mapping) {
	r, claims, grace := newMapping(), true, ""
	fields{
		"deleteStorage": func(_ *converter, _ string, in *yaml.Node, _ *mapping) { claims = in.Value != "false" },
		"forceDelete": func(_ *converter, _ string, in *yaml.Node, _ *mapping) {
			if in.Value == "true" {
				grace = "0s"
			}
		},
		"gracePeriodSeconds": func(c *converter, at string, in *yaml.Node, _ *mapping) {
			if n, ok := c.integer(at, in); ok && grace == "" {
				grace = strconv.FormatInt(n, 10) + "s"
			}
		},
	}.convert(c, at, in, r)
	if claims {
		r.set("deleteClaims", &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: "true"})
	}
	if grace != "" {
		r.set("gracePeriod", text(grace))
	}
	out.set("podReplacement", r.node)
}

// grpcEndpoints may have several entries of a method. Those without a percentage share what the others leave.
func grpcEndpoints(c *converter, at string, in *yaml.Node, out *mapping) {
	list("endpoints", fields{
		"endpoint": as("method"), "error": refusedOK, "queryPercent": given("percentage"),
		"override": func(c *converter, at string, in *yaml.Node, out *mapping) {
			switch in.Value {
			case "":
			case "{}":
				out.set("override", text("empty"))
			default:
				c.errorf(in, `%s must be "{}"`, at)
			}
		},
	})(c, at, in, out)
	left, open := map[string]int64{}, map[string][]*yaml.Node{}
	endpoints := entry(out.node, "endpoints")
	if endpoints == nil {
		return
	}
	for _, e := range endpoints.Content {
		method := value(e, "method")
		if _, known := left[method]; !known {
			left[method] = 100
		}
		if percent, err := strconv.ParseInt(value(e, "percentage"), 10, 32); err == nil {
			left[method] -= percent
		} else {
			open[method] = append(open[method], e)
		}
	}
	for method, shares := range open {
		if left[method] == 100 && len(shares) == 1 {
			continue // as it is without a percentage
		}
		for _, e := range shares {
			(&mapping{e}).set("percentage", number(max(left[method], 0)/int64(len(shares))))
		}
	}
}

func refusedOK(c *converter, at string, in *yaml.Node, out *mapping) {
	if in.Value == "OK" {
		c.errorf(in, "%s: OK is not an error; write override: empty instead", at)
		return
	}
	given("error")(c, at, in, out)
}
