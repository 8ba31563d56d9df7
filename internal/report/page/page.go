package page

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/trommel-dev/trommel/instrumentation/wire"
	"github.com/trommel-dev/trommel/internal/metadata"
	"github.com/trommel-dev/trommel/internal/report"
	"github.com/trommel-dev/trommel/plan"
	"github.com/trommel-dev/trommel/record"
)

// pageData is what the scripts of a run's page draw. Times are milliseconds from the moment from which the report
// counts. An index of -1 means none.
type pageData struct {
	Zero    int64        `json:"zero"` // Unix milliseconds of that moment
	From    float64      `json:"from"`
	To      float64      `json:"to"`
	Lanes   []pageLane   `json:"lanes"`
	Objects []pageObject `json:"objects"`
	Items   []pageItem   `json:"items"` // by time
	States  int          `json:"states"`
	Chunk   int          `json:"chunk"` // number of states in each of the blocks that hold them
	// Series are, by object, the versions that each place had.
	Series []objectSeries `json:"series,omitempty"`
	Logs   []pageLog      `json:"logs,omitempty"`
	// Focus is the object whose versions are shown first; -1: none has any.
	Focus int `json:"focus"`
}

type pageLane struct {
	Group string `json:"g"`
	Name  string `json:"n"`
	// Object is set for an object's lane.
	Object int `json:"o"`
}

type pageObject struct {
	Key string `json:"k"` // type/namespace/name
	// Asked: the plan, the suite or a finding names it, or a controller under test wrote it.
	Asked bool `json:"a"`
	Lane  int  `json:"l"`
}

// pageItem is something that happened, on a lane.
type pageItem struct {
	Lane   int       `json:"l"`
	At     float64   `json:"t"`
	End    float64   `json:"e,omitempty"` // of a span; 0: a moment
	Kind   string    `json:"k"`           // its look, see timeline.js
	Title  string    `json:"x"`
	Detail []string  `json:"d,omitempty"` // further lines
	Object int       `json:"o"`
	State  int       `json:"s"`           // the object's state
	Before int       `json:"p"`           // the state that this place had before
	Etcd   int       `json:"c"`           // the state in etcd at that time, if it is another one
	Seqs   []int     `json:"q,omitempty"` // numbers of its events
	Run    string    `json:"r,omitempty"` // its reconcile
	time   time.Time // for sorting
}

// pageLog is a log; its lines are in a block of their own.
type pageLog struct {
	Name  string `json:"n"`
	Lines int    `json:"c"`
	// Controller: it is the log of a controller under test.
	Controller bool `json:"u,omitempty"`
	content    logContent
}

// Groups of lanes, in their order.
const (
	groupFindings    = "Findings"
	groupPlan        = "Plan"
	groupAPIServers  = "API servers"
	groupControllers = "Controllers"
	groupObjects     = "Objects"
)

var groups = []string{groupFindings, groupPlan, groupAPIServers, groupControllers, groupObjects}

const none = -1

// pageBuilder makes a page's data from a run record.
type pageBuilder struct {
	run     *record.Run
	plan    *plan.Plan // nil: unknown
	account *record.Account
	data    pageData

	lanes   map[[2]string]int
	objects map[string]int
	kinds   map[string]string // by plural
	states  []json.RawMessage
	known   map[string]int           // states by object and content
	past    map[int][]objectState    // by object: its states in etcd
	stale   map[int]record.StaleRead // by Seq
	bySeq   map[int]int              // items by the number of their event
}

// objectState is a state of an object in etcd.
type objectState struct {
	time    time.Time
	version uint64
	event   string
	label   string // the event, and whether it marked the object for deletion
	state   int
}

func newPage(r *record.Run, p *plan.Plan, a *record.Account) *pageBuilder {
	if a == nil {
		a = &record.Account{}
	}
	b := &pageBuilder{
		run: r, plan: p, account: a, lanes: map[[2]string]int{}, objects: map[string]int{}, kinds: map[string]string{},
		known: map[string]int{}, past: map[int][]objectState{}, stale: map[int]record.StaleRead{}, bySeq: map[int]int{},
	}
	for _, s := range r.Meta.StaleReads {
		b.stale[s.Event] = s
	}
	for _, e := range r.Events {
		if o := e.Observation; o != nil && o.Kind != "" && o.Resource != "" {
			b.kinds[o.Resource] = o.Kind
		}
	}
	b.data.Zero = report.Zero(r).UnixMilli()
	b.history()
	b.events()
	b.reconciles()
	b.holds()
	drawSchedule(b)
	b.disruptions()
	b.cycles()
	b.actions()
	b.workload()
	b.processes()
	b.found()
	b.span()
	b.series()
	b.order()
	b.logs()
	b.data.States = len(b.states)
	return b
}

// ms is a moment as the page counts it. Its precision is a microsecond.
func (b *pageBuilder) ms(t time.Time) float64 {
	return float64(t.Sub(report.Zero(b.run)).Microseconds()) / 1000
}

func (b *pageBuilder) lane(group, name string) int {
	at := [2]string{group, name}
	if i, ok := b.lanes[at]; ok {
		return i
	}
	i := len(b.data.Lanes)
	b.data.Lanes = append(b.data.Lanes, pageLane{Group: group, Name: name, Object: none})
	b.lanes[at] = i
	return i
}

func (b *pageBuilder) add(item pageItem, at time.Time) int {
	item.At, item.time = b.ms(at), at
	b.data.Items = append(b.data.Items, item)
	i := len(b.data.Items) - 1
	for _, seq := range item.Seqs {
		b.bySeq[seq] = i
	}
	return i
}

// moment is an item about nothing in particular.
func moments(lane int, kind, title string) pageItem {
	return pageItem{Lane: lane, Kind: kind, Title: title, Object: none, State: none, Before: none, Etcd: none}
}

// object returns the index of an object, which is added if it is new; none if the name is empty.
func (b *pageBuilder) object(kind, namespace, name string) int {
	if kind == "" || name == "" {
		return none
	}
	key := kind + "/" + namespace + "/" + name
	if i, ok := b.objects[key]; ok {
		return i
	}
	i := len(b.data.Objects)
	b.data.Objects = append(b.data.Objects, pageObject{Key: key, Lane: none})
	b.objects[key] = i
	return i
}

// kind returns the kind of an observation's object.
func (b *pageBuilder) kind(o *record.Observation) string {
	return cmp.Or(o.Kind, b.kinds[o.Resource], strings.TrimSuffix(o.Resource, "s"))
}

// typeOf returns the kind of an observation's object, and its cluster if there are several.
func (b *pageBuilder) typeOf(o *record.Observation) string { return record.In(o.Cluster, b.kind(o)) }

// state returns the index of an object's state, without its managed fields; none if there is none.
func (b *pageBuilder) state(object int, raw json.RawMessage) int {
	if len(raw) == 0 {
		return none
	}
	var m map[string]any
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	if d.Decode(&m) != nil {
		return none
	}
	if meta, ok := m["metadata"].(map[string]any); ok {
		delete(meta, "managedFields")
	}
	for _, field := range []string{"kind", "apiVersion"} { // objects from caches lack them
		delete(m, field)
	}
	text, err := json.Marshal(m)
	if err != nil {
		return none
	}
	key := strconv.Itoa(object) + " " + string(text)
	if i, ok := b.known[key]; ok {
		return i
	}
	b.states = append(b.states, text)
	b.known[key] = len(b.states) - 1
	return len(b.states) - 1
}

func (b *pageBuilder) history() {
	r := b.run
	asked := b.asked()
	lives := map[int]time.Time{}
	lasts := map[int]*record.HistoryEntry{}
	begin := report.Zero(r)
	for i := range r.History {
		h := &r.History[i]
		object := b.object(record.In(h.Cluster, h.Type), h.Namespace, h.Name)
		if object == none {
			continue // a broken record
		}
		lane := b.lane(groupObjects, b.data.Objects[object].Key)
		b.data.Objects[object].Lane, b.data.Lanes[lane].Object = lane, object
		if asked(h) {
			b.data.Objects[object].Asked = true
		}
		at := h.Time
		if h.Event == record.Existing {
			at = begin
		}
		before := none
		if past := b.past[object]; len(past) > 0 && past[len(past)-1].event != record.Deleted {
			before = past[len(past)-1].state
		}
		kind, title := h.Event, h.Event
		if h.Event == record.Updated && marked(h.Object) && (lasts[object] == nil || !marked(lasts[object].Object)) {
			kind, title = "marked", "marked for deletion"
		}
		title = fmt.Sprintf("%s is %s%s", b.data.Objects[object].Key, title, writtenBy(*h))
		if h.Event == record.Existing {
			title = b.data.Objects[object].Key + " exists before the run"
		}
		item := moments(lane, kind, title)
		item.Object, item.State, item.Before = object, b.state(object, h.Object), before
		item.Detail = []string{fmt.Sprintf("resource version %d", h.ResourceVersion)}
		b.add(item, at)
		label := h.Event
		if kind == "marked" {
			label = "marked for deletion"
		}
		b.past[object] = append(b.past[object], objectState{at, h.ResourceVersion, h.Event, label, item.State})
		if _, alive := lives[object]; !alive {
			lives[object] = at
		}
		lasts[object] = h
		if h.Event == record.Deleted {
			b.life(object, lives[object], at)
			delete(lives, object)
			delete(lasts, object)
		}
	}
	for i := range b.data.Objects {
		if from, alive := lives[i]; alive {
			b.life(i, from, time.Time{})
		}
	}
}

// life draws for how long an object existed; a zero end is the end of the page.
func (b *pageBuilder) life(object int, from, to time.Time) {
	o := b.data.Objects[object]
	item := moments(o.Lane, "life", o.Key+" exists")
	item.Object = object
	if item.End = none; !to.IsZero() {
		item.End = b.ms(to)
	}
	b.add(item, from)
}

func marked(object json.RawMessage) bool {
	var o struct {
		Metadata struct {
			DeletionTimestamp *string `json:"deletionTimestamp"`
		} `json:"metadata"`
	}
	return json.Unmarshal(object, &o) == nil && o.Metadata.DeletionTimestamp != nil
}

// asked returns a function that reports whether an object is asked for: the plan, the suite or a finding names it, or a
// controller under test or the workload wrote it. A history that names some objects of a type is recorded for all of
// them, and with them come those of the cluster itself.
func (b *pageBuilder) asked() func(*record.HistoryEntry) bool {
	var keys []plan.ResourceKey
	p := b.plan
	suite, err := plan.ParseSuite(b.run.Suite, "")
	if p == nil || err != nil {
		return func(*record.HistoryEntry) bool { return true }
	}
	keys = slices.Concat(keys, suite.History, p.History)
	for i := range p.Actions {
		a := &p.Actions[i]
		if scope := a.Scope(); !scope.Everything() {
			keys = append(keys, scope.Key)
		}
		if key, err := plan.ParseResourceKey(a.Object()); err == nil {
			keys = append(keys, key)
		}
		for _, d := range a.Trigger.Definitions {
			if d.Condition.ResourceKey.Type != "" {
				keys = append(keys, d.Condition.ResourceKey)
			}
		}
	}
	writers := map[string]bool{"trommel-workload": true}
	for _, c := range b.run.Meta.Controllers {
		writers[c.Name] = true
	}
	written := map[string]bool{}
	for _, e := range b.run.Events {
		if o := e.Observation; o != nil && o.Point == wire.ControllerWrite && o.Name != "" && kindOf(o) != "election" {
			written[b.typeOf(o)+"/"+o.Namespace+"/"+o.Name] = true
		}
	}
	found := report.ByCause(b.run)
	return func(h *record.HistoryEntry) bool {
		key := record.In(h.Cluster, h.Type) + "/" + h.Namespace + "/" + h.Name
		return written[key] || slices.ContainsFunc(keys, func(k plan.ResourceKey) bool {
			return k.Matches(h.Type, h.Group, true, h.Namespace, h.Name)
		}) || h.Event != record.Existing && slices.ContainsFunc(h.Writers, func(w record.FieldManager) bool {
			return writers[w.Manager]
		}) || slices.ContainsFunc(found, func(f report.GroupedFinding) bool {
			return report.Names(report.WithoutGroup(f.Subject), key) || report.Names(f.Title, key) ||
				report.Names(f.Detail, key)
		})
	}
}

// inEtcd is the state of an object in etcd at a time; none if it did not exist, ok is false if that is not known.
func (b *pageBuilder) inEtcd(object int, at time.Time) (s objectState, ok bool) {
	past := b.past[object]
	i, found := slices.BinarySearchFunc(past, at, func(s objectState, t time.Time) int { return s.time.Compare(t) })
	if !found {
		i--
	}
	if i < 0 {
		return objectState{}, false
	}
	return past[i], true
}

type callKey struct{ session, call uint64 }

// seenAt is where an object's state is seen: a process's informer, its reads, an API server.
type seenAt struct {
	lane    int
	session uint64
	object  int
}

func (b *pageBuilder) events() {
	begun := map[callKey]int{} // items of calls that have not returned
	last := map[seenAt]int{}   // states
	holders := map[string]string{}
	for i := range b.run.Events {
		e := &b.run.Events[i]
		switch {
		case e.Observation != nil:
			b.observation(e, begun, last, holders)
		case e.SessionEnd != nil:
			by := e.SessionEnd.By
			if plan.IsAPIServer(by) {
				item := moments(b.lane(groupAPIServers, by), "kill", by+" ends")
				item.Seqs = []int{e.Seq}
				b.add(item, e.Time)
			}
		}
	}
}

func (b *pageBuilder) observation(e *record.Event, begun map[callKey]int, last map[seenAt]int,
	holders map[string]string) {
	o := e.Observation
	key := callKey{o.Session, o.Call}
	if at, ok := begun[key]; ok && o.Phase == wire.After && o.Call != 0 {
		delete(begun, key)
		item := &b.data.Items[at]
		item.End = b.ms(e.Time)
		item.Seqs = append(item.Seqs, e.Seq)
		b.bySeq[e.Seq] = at
		b.finish(item, e, last)
		return
	}
	item := moments(b.laneOf(o), kindOf(o), "")
	item.Run, item.Seqs = o.ReconcileID, []int{e.Seq}
	item.Object = b.object(b.typeOf(o), o.Namespace, o.Name)
	b.election(e, holders)
	b.finish(&item, e, last)
	at := b.add(item, e.Time)
	if o.Phase == wire.Before && o.Call != 0 {
		begun[key] = at
	}
}

// finish fills in what an observation says of its item. Of a call, the one after it says more than the one before it.
func (b *pageBuilder) finish(item *pageItem, e *record.Event, last map[seenAt]int) {
	o := e.Observation
	item.Title = b.say(o)
	item.Kind = kindOf(o)
	if state := b.state(item.Object, o.Object); state != none {
		item.State = state
		at := seenAt{item.Lane, o.Session, item.Object}
		if before, ok := last[at]; ok {
			item.Before = before
		} else if len(o.OldObject) > 0 {
			item.Before = b.state(item.Object, o.OldObject)
		}
		if o.Phase == wire.After {
			last[at] = state
		}
	}
	item.Detail = nil
	if v := metadata.ResourceVersion(o.Object); v > 0 {
		item.Detail = append(item.Detail, fmt.Sprintf("resource version %d", v))
		if past, ok := b.inEtcd(item.Object, e.Time); ok && past.version > v && o.Point != wire.ControllerWrite {
			item.Etcd = past.state
			item.Detail = append(item.Detail, fmt.Sprintf("etcd has %s at that time", versionText(past)))
		}
	}
	if o.Reconciler != "" || o.Request != "" {
		item.Detail = append(item.Detail, strings.TrimSpace(fmt.Sprintf("in the reconcile of %s %s", o.Request,
			prefixed("by ", o.Reconciler))))
	}
	switch {
	case o.Failed != "":
		item.Kind = "refused"
		item.Detail = append(item.Detail, report.Failed(o))
	case o.Error != "":
		item.Detail = append(item.Detail, "it returned: "+o.Error)
	}
	if s, ok := b.stale[e.Seq]; ok {
		item.Kind = "stale"
		item.Detail = append([]string{"stale read: " + s.String()}, item.Detail...)
	}
}

func versionText(s objectState) string {
	if s.event == record.Deleted {
		return fmt.Sprintf("it deleted (resource version %d)", s.version)
	}
	return fmt.Sprintf("resource version %d", s.version)
}

func prefixed(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

// election notes when the holder of a controller's lease changes.
func (b *pageBuilder) election(e *record.Event, holders map[string]string) {
	o := e.Observation
	if o.Point != wire.ControllerWrite || o.Phase != wire.After || o.Error != "" || b.kind(o) != "lease" {
		return
	}
	var lease struct {
		Spec struct {
			HolderIdentity string `json:"holderIdentity"`
		} `json:"spec"`
	}
	if json.Unmarshal(o.Object, &lease) != nil || lease.Spec.HolderIdentity == "" {
		return
	}
	key := o.By + " " + o.Namespace + "/" + o.Name
	if holders[key] == lease.Spec.HolderIdentity {
		return
	}
	holders[key] = lease.Spec.HolderIdentity
	item := moments(b.lane(groupControllers, o.By), "leader", fmt.Sprintf("a process of %s leads now: %s", o.By,
		lease.Spec.HolderIdentity))
	item.Detail = []string{"it holds the lease " + o.Namespace + "/" + o.Name}
	b.add(item, e.Time)
}

// laneOf is the lane of an observation.
func (b *pageBuilder) laneOf(o *record.Observation) int {
	if plan.IsAPIServer(o.By) {
		return b.lane(groupAPIServers, o.By)
	}
	what := map[wire.Point]string{
		wire.ControllerRecv: "receives", wire.ControllerRead: "reads", wire.ControllerWrite: "writes",
		wire.AnnotatedCall: "calls", wire.Reconcile: "reconciles",
	}[o.Point]
	if what == "reconciles" && o.Reconciler != "" {
		what += " " + o.Reconciler
	}
	return b.lane(groupControllers, o.By+" "+what)
}

// kindOf is the look of an observation.
func kindOf(o *record.Observation) string {
	switch {
	case o.Election || o.ReconcileID == "" && o.Group == "coordination.k8s.io" && o.Point != wire.ControllerRecv:
		return "election"
	case o.Point == wire.ControllerWrite && o.Error != "":
		return "failed"
	}
	return map[wire.Point]string{
		wire.APIServerRecv: "sees", wire.ControllerRecv: "receives", wire.ControllerRead: "reads",
		wire.ControllerWrite: "writes", wire.Reconcile: "reconcile", wire.AnnotatedCall: "call",
	}[o.Point]
}

// say describes an observation in a sentence.
func (b *pageBuilder) say(o *record.Observation) string {
	key := b.typeOf(o) + "/" + o.Namespace + "/" + o.Name
	verb := func(does, will string) string {
		if o.Phase == wire.Before {
			return o.By + " is about to " + will
		}
		return o.By + " " + does
	}
	of := map[wire.Operation]string{wire.Create: "creation", wire.Update: "update", wire.Delete: "deletion"}[o.Op]
	switch o.Point {
	case wire.APIServerRecv:
		return fmt.Sprintf("%s the %s of %s", verb("sees", "see"), of, key)
	case wire.ControllerRecv:
		return fmt.Sprintf("%s the %s of %s", verb("receives", "receive"), of, key)
	case wire.ControllerRead:
		from := "from its cache"
		if o.Live {
			from = "from the API server"
		}
		if o.Op == wire.List || o.Op == wire.Watch {
			return fmt.Sprintf("%s %s/%s/* %s", verb(string(o.Op)+"s", string(o.Op)),
				b.typeOf(o), o.Namespace, from)
		}
		text := fmt.Sprintf("%s %s %s", verb("reads", "read"), key, from)
		if o.Code == 404 {
			text += ": it is not there"
		}
		return text
	case wire.ControllerWrite:
		op := string(o.Op)
		does := map[wire.Operation]string{wire.Apply: "applies", wire.Patch: "patches",
			wire.DeleteCollection: "deletes all of"}[o.Op]
		if o.Op == wire.DeleteCollection {
			op = "delete all of"
		}
		if does == "" {
			does = op + "s"
		}
		text := verb(does, op) + " " + key
		if o.Subresource != "" {
			text += " (its " + o.Subresource + ")"
		}
		if o.Error != "" {
			text = o.By + " tries to " + op + " " + key
		}
		return text
	case wire.Reconcile:
		return verb("reconciles", "reconcile") + " " + o.Request
	}
	return verb("calls", "call") + " " + o.CallName
}

// reconciles draws those reconciles whose begin and end were not observed, from their first to their last call.
func (b *pageBuilder) reconciles() {
	observed := map[string]bool{}
	first := map[string]*record.Event{}
	last := map[string]*record.Event{}
	var ids []string
	for i := range b.run.Events {
		e := &b.run.Events[i]
		o := e.Observation
		if o == nil || o.ReconcileID == "" {
			continue
		}
		if o.Point == wire.Reconcile {
			observed[o.ReconcileID] = true
		}
		if first[o.ReconcileID] == nil {
			first[o.ReconcileID] = e
			ids = append(ids, o.ReconcileID)
		}
		last[o.ReconcileID] = e
	}
	for _, id := range ids {
		if observed[id] {
			continue
		}
		o := first[id].Observation
		item := moments(b.lane(groupControllers, strings.TrimSpace(o.By+" reconciles "+o.Reconciler)), "reconcile",
			fmt.Sprintf("%s reconciles %s", o.By, o.Request))
		item.Detail = []string{"from its first to its last observed call; its begin and its end were not observed"}
		item.Run, item.End = id, b.ms(last[id].Time)
		b.add(item, first[id].Time)
	}
}

func (b *pageBuilder) actionName(i int) string {
	for _, a := range b.run.Actions {
		if a.Index == i {
			return a.String()
		}
	}
	if b.plan != nil && i < len(b.plan.Actions) {
		return record.ActionName(i, b.plan.Actions[i].String())
	}
	return fmt.Sprintf("action %d", i+1)
}

// holds draws what was held, and the pauses, failures and freezes that lasted.
func (b *pageBuilder) holds() {
	ends := map[record.HoldEnd]string{
		record.HoldReleased: "an action let it go on", record.HoldOver: "the plan was over",
		record.HoldExpired: "it reached its deadline", record.HoldAbandoned: "its caller gave up",
		record.HoldKilled: "its process ended",
	}
	for _, h := range b.account.Holds {
		at, ok := b.bySeq[h.Event]
		if !ok {
			continue
		}
		held := b.data.Items[at]
		by := "held until " + b.actionName(h.Action) + " is complete"
		if h.Paused {
			by = "held by " + b.actionName(h.Action)
		}
		item := moments(held.Lane, "hold", fmt.Sprintf("%s: %s", by, b.say(b.run.Events[h.Event-1].Observation)))
		item.Object, item.State, item.Run = held.Object, held.State, held.Run
		item.End = none
		if !h.To.IsZero() {
			item.End = b.ms(h.To)
			item.Detail = append(item.Detail,
				fmt.Sprintf("held for %s, until %s", report.Round(h.To.Sub(h.From)), ends[h.End]))
		}
		item.Detail = append(item.Detail, fmt.Sprintf("event %d", h.Event))
		b.add(item, h.From)
	}
	for _, e := range b.account.Effects {
		group, kind := groupControllers, "pause"
		if plan.IsAPIServer(e.By) {
			group = groupAPIServers
		}
		lane := b.lane(group, e.By)
		if b.plan != nil && e.Action < len(b.plan.Actions) {
			switch a := &b.plan.Actions[e.Action]; {
			case plan.Has[*plan.Freeze](a):
				kind = "frozen"
			case !plan.Has[*plan.Pause](a):
				kind = "failing"
			}
		}
		item := moments(lane, kind, b.actionName(e.Action)+" is in force")
		item.End = none
		if !e.To.IsZero() {
			item.End = b.ms(e.To)
		}
		b.add(item, e.From)
	}
}

// disruptions draws how long each disruption was in force.
func (b *pageBuilder) disruptions() {
	if b.plan == nil {
		return
	}
	in := func(a record.Action) *plan.Action {
		if a.Index >= len(b.plan.Actions) {
			return &plan.Action{}
		}
		return &b.plan.Actions[a.Index]
	}
	for i, a := range b.run.Actions {
		begins := plan.EffectOf[*plan.Begin](in(a))
		if begins == nil || begins.Disruption == "" || a.Error != "" {
			continue
		}
		name := begins.Disruption
		item := moments(b.lane(groupPlan, "disruptions"), "failing", "disruption "+name+" is in force")
		item.End = none
		for _, later := range b.run.Actions[i+1:] {
			if ends := plan.EffectOf[*plan.End](in(later)); ends != nil && ends.Disruption == name {
				item.End = b.ms(later.Done)
				break
			}
		}
		if calm := b.run.Meta.Calm; item.End == none && !calm.IsZero() {
			item.End = b.ms(calm) // all effects of the plan are undone
		}
		b.add(item, a.Done)
	}
}

// cycles draws how long each cycle of nodes was in each phase.
func (b *pageBuilder) cycles() {
	if b.plan == nil {
		return
	}
	for i := range b.plan.Actions {
		c := b.plan.Actions[i].Cycles()
		if c == nil {
			continue
		}
		key, last := c.Key(), ""
		var began time.Time
		end := func(at time.Time) {
			if last != "" {
				item := moments(b.lane(groupPlan, "cycles"), "failing", "cycle "+c.Name()+" is "+last)
				item.End = b.ms(at)
				b.add(item, began)
			}
			last = ""
		}
		var seen time.Time
		for _, h := range b.run.History {
			if h.Type != key.Type || h.Group != key.Group || h.Namespace != key.Namespace || h.Name != key.Name {
				continue
			}
			var request struct {
				Status struct{ Phase, Progress string }
			}
			seen = h.Time
			if h.Event == "deleted" || json.Unmarshal(h.Object, &request) != nil {
				end(h.Time)
				continue
			}
			phase := strings.TrimSpace(request.Status.Phase + " " + request.Status.Progress)
			if phase == last {
				continue
			}
			end(h.Time)
			if ended := plan.CyclePhase(request.Status.Phase); ended != plan.CycleSuccessful &&
				ended != plan.CycleFailed {
				last, began = phase, h.Time
			}
		}
		if calm := b.run.Meta.Calm; calm.After(seen) {
			seen = calm
		}
		end(seen) // it was left behind
	}
}

func (b *pageBuilder) actions() {
	for _, a := range b.run.Actions {
		item := moments(b.lane(groupPlan, "actions"), "action", a.String())
		if a.FiredBy > 0 && a.Cause != "" {
			item.Detail = append(item.Detail, fmt.Sprintf("fired by %s (event %d)", a.Cause, a.FiredBy))
		}
		item.Detail = append(item.Detail, "took "+report.Round(a.Done.Sub(a.At())).String())
		if a.Error != "" {
			item.Kind = "actionfailed"
			item.Detail = append(item.Detail, "failed: "+a.Error)
		}
		if a.Note != "" {
			item.Detail = append(item.Detail, "note: "+a.Note)
		}
		item.End = b.ms(a.Done)
		b.add(item, a.At())
	}
}

func (b *pageBuilder) workload() {
	m := b.run.Meta
	if m.WorkloadStart.IsZero() {
		return
	}
	item := moments(b.lane(groupPlan, "workload"), "workload", "the workload runs")
	item.End = none
	if !m.WorkloadEnd.IsZero() {
		item.End = b.ms(m.WorkloadEnd)
	}
	b.add(item, m.WorkloadStart)
	for i, s := range m.Steps {
		step := moments(item.Lane, "step", "workload: "+s.Text)
		step.End = item.End
		if i+1 < len(m.Steps) {
			step.End = b.ms(m.Steps[i+1].Started)
		}
		b.add(step, s.Started)
	}
	if !m.Calm.IsZero() {
		item := moments(item.Lane, "calm", "nothing disturbs the controllers from here on")
		b.add(item, m.Calm)
	}
}

func (b *pageBuilder) processes() {
	for _, p := range b.run.Processes {
		lane := b.lane(groupControllers, p.Controller)
		item := moments(lane, "process", fmt.Sprintf("a process of %s (pod %s)", p.Controller, p.Pod))
		item.End = none
		from := p.Started
		if from.Before(report.Zero(b.run)) {
			from = report.Zero(b.run)
		}
		over := b.run.Meta.Observed
		if !p.Running() && (over.IsZero() || !p.Ended.After(over)) {
			item.End = b.ms(p.Ended)
			kind, title := "exit", fmt.Sprintf("%s exits on its own (exit code %d)", p.Controller, p.ExitCode)
			if p.Planned {
				kind, title = "kill", fmt.Sprintf("%s is stopped by the plan, or its pod is deleted", p.Controller)
			}
			b.add(moments(lane, kind, title), p.Ended)
		}
		b.add(item, from)
		if p.Started.After(report.Zero(b.run)) {
			b.add(moments(lane, "start", fmt.Sprintf("%s starts (pod %s)", p.Controller, p.Pod)), p.Started)
		}
	}
}

func (b *pageBuilder) found() {
	lane := none
	for i, f := range report.ByCause(b.run) {
		if f.Time.IsZero() || f.Severity == record.SeverityNote {
			continue
		}
		if lane == none {
			lane = b.lane(groupFindings, "findings")
		}
		item := moments(lane, "finding", fmt.Sprintf("finding %d: %s", i+1, f.Title))
		if parts := strings.SplitN(report.WithoutGroup(f.Subject), "/", 3); len(parts) == 3 {
			if o, ok := b.objects[strings.Join(parts, "/")]; ok {
				item.Object = o
			}
		}
		if f.Detail != "" {
			item.Detail = strings.Split(report.Shorten(f.Detail, 40), "\n")
		}
		item.Detail = append(item.Detail, "noticed here")
		b.add(item, f.Time)
		if f.Happened.Before(f.Time) && !f.Happened.IsZero() {
			cause := moments(lane, "cause", fmt.Sprintf("what finding %d is about begins here", i+1))
			cause.Object = item.Object
			b.add(cause, f.Happened)
		}
	}
}

// span finds from when to when the page shows the run.
func (b *pageBuilder) span() {
	if len(b.data.Items) == 0 {
		b.data.To = 1
		return
	}
	from, to := b.data.Items[0].At, b.data.Items[0].At
	for _, i := range b.data.Items {
		from, to = min(from, i.At), max(to, i.At, i.End)
	}
	b.data.From, b.data.To = from, max(to, from+1)
	for i := range b.data.Items {
		if b.data.Items[i].End == none {
			b.data.Items[i].End = b.data.To
		}
	}
}

// order sorts items by time, and lanes by their groups.
func (b *pageBuilder) order() {
	by := make([]int, len(b.data.Lanes))
	for i := range by {
		by[i] = i
	}
	rank := func(i int) []string {
		l := b.data.Lanes[i]
		asked := "1"
		if l.Object != none && b.data.Objects[l.Object].Asked {
			asked = "0"
		}
		name := l.Name
		if l.Group == groupControllers {
			name, _, _ = strings.Cut(l.Name, " ")
			what := strings.TrimPrefix(strings.TrimPrefix(l.Name, name), " ")
			first, _, _ := strings.Cut(what, " ")
			n := slices.Index([]string{"", "receives", "reconciles", "reads", "writes", "calls"}, first)
			name += fmt.Sprintf(" %d %s", n, what)
		}
		return []string{strconv.Itoa(slices.Index(groups, l.Group)), asked, name}
	}
	slices.SortStableFunc(by, func(x, y int) int { return slices.Compare(rank(x), rank(y)) })
	place := make([]int, len(by))
	lanes := make([]pageLane, len(by))
	for n, i := range by {
		place[i], lanes[n] = n, b.data.Lanes[i]
	}
	b.data.Lanes = lanes
	for i := range b.data.Items {
		b.data.Items[i].Lane = place[b.data.Items[i].Lane]
	}
	for i := range b.data.Objects {
		if b.data.Objects[i].Lane != none {
			b.data.Objects[i].Lane = place[b.data.Objects[i].Lane]
		}
	}
	slices.SortStableFunc(b.data.Items, func(x, y pageItem) int { return x.time.Compare(y.time) })
}
