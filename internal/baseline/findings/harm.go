// Package findings turns differences from a baseline into findings: what they harm and how, which of them belong
// together, and in which order people should read them. All code that shows findings uses it.
package findings

import (
	"slices"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/internal/facts"
	"github.com/trommel-dev/trommel/record"
)

// nouns are the usual words for types.
var nouns = map[string]string{
	"persistentvolumeclaim": "volume claim", "persistentvolume": "volume", "statefulset": "StatefulSet",
	"configmap": "ConfigMap", "serviceaccount": "service account", "replicaset": "ReplicaSet",
	"daemonset": "DaemonSet", "cronjob": "CronJob", "rolebinding": "role binding", "clusterrole": "cluster role",
	"clusterrolebinding": "cluster role binding", "poddisruptionbudget": "disruption budget",
	"networkpolicy": "network policy", "endpointslice": "EndpointSlice",
}

// Name is how people call an object: its type without the group, and its name with the namespace; after the cluster if
// there are several.
func Name(key string) string {
	typ, rest, _ := strings.Cut(facts.Key(key).Local(), "/")
	typ, _, _ = strings.Cut(typ, ".")
	if noun, ok := nouns[typ]; ok {
		typ = noun
	}
	return record.In(facts.Key(key).Cluster(), typ+" "+strings.TrimPrefix(rest, "/"))
}

// lost says what is lost with an object that is deleted; empty: nothing that cannot be made again.
func lost(typ string) string {
	switch {
	case typ == "statefulset.apps":
		return "its pods are gone with it"
	case typ == "namespace":
		return "all that it held is lost"
	case facts.IsCustom(typ):
		return "what belongs to it is lost"
	case facts.HoldsData(typ):
		return "its data is lost"
	}
	return ""
}

// Stake is what users may lose if a controller errs at a change of an object, from the least on.
type Stake int

// The stakes.
const (
	StakeMinor Stake = iota // it is made again from what is there, or only describes the state
	StakeUsual              // something else
	StakeData               // what holds data is made or changed, or something that works is deleted
	StakeLoss               // what holds data is deleted, or marked for deletion
)

// minor are types of objects that hold nothing and run nothing: they are made again from what is there.
var minor = []string{
	"configmap", "service", "serviceaccount", "endpoints", "event", "endpointslice.discovery.k8s.io",
	"event.events.k8s.io", "lease.coordination.k8s.io",
}

// AtStake is what is at stake when an object of a type, type[.group], is changed. Deletes: it is deleted, or marked for
// that. Content: what it asks for or holds is made or changed, and not only its status or labels.
func AtStake(typ string, deletes, content bool) Stake {
	small := slices.Contains(minor, typ) || strings.HasSuffix(typ, ".rbac.authorization.k8s.io")
	switch {
	case deletes && lost(typ) != "":
		return StakeLoss
	case deletes && !small, content && facts.HoldsData(typ):
		return StakeData
	case deletes, content && !small:
		return StakeUsual
	}
	return StakeMinor
}

// remarks are the names of fields in a status that tell of something, for people to read.
var remarks = []string{"message", "reason", "error", "lastError", "lastMessage", "description", "detail", "details"}

// OfField is the harm that a different value of a field does. The values may be nil: the field is absent.
func OfField(field string, want, got any) record.Harm {
	if isDate(want) || isDate(got) {
		return record.HarmRemark
	}
	if !strings.HasPrefix(field, "status.") {
		return record.HarmWrong
	}
	name := field[strings.LastIndex(field, ".")+1:]
	if slices.Contains(remarks, name) || strings.HasSuffix(name, "Time") || strings.HasSuffix(name, "Timestamp") {
		return record.HarmRemark
	}
	return record.HarmStatus
}

func isDate(v any) bool {
	text, ok := v.(string)
	if !ok {
		return false
	}
	_, err := time.Parse(time.RFC3339, text)
	return err == nil
}
