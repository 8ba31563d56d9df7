package aws

import (
	"encoding/xml"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
)

// cloud answers as the Query APIs of Auto Scaling (2011-01-01) and EC2 (2016-11-15) are documented to. What takes time
// takes some requests. It gives pages of one element, and begins with an empty one.
type cloud struct {
	mu        sync.Mutex
	groups    map[string]*asg
	instances []*machine
	latest    int                // version of the launch template
	throttled bool               // all calls
	lose      bool               // the answer of the next call that changes something
	refuse    map[string]refusal // by action: the next call's error
	seen      []string           // actions
	started   int
}

type asg struct {
	desired, max int
	min          int
	version      string // of the launch template, such as $Latest
	mixed        bool   // the template is in a mixed instances policy
	configured   string // launch configuration, instead of a template
	unit         string
	weight       string
}

type machine struct {
	id, zone      string
	group         string
	lifecycle     string // in its group
	state         string // of EC2
	version       int    // of the launch template; 0: unknown
	configuration string
	tag           string
	steps         int // requests until it moves on
}

type refusal struct {
	status     int
	code, text string
	retryAfter string
}

const steps = 3

func newCloud(t *testing.T) (*cloud, *Provider) {
	c := &cloud{groups: map[string]*asg{}, latest: 7, refuse: map[string]refusal{}}
	s := httptest.NewServer(c)
	t.Cleanup(s.Close)
	return c, New(aws.Config{
		Region: "eu-central-1", BaseEndpoint: aws.String(s.URL),
		Credentials: credentials.NewStaticCredentialsProvider("AKIDEXAMPLE", "secret", ""),
	})
}

func (c *cloud) add(name string, g *asg) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.groups[name] = g
	c.scale()
}

func (c *cloud) find(id string) *machine {
	for _, m := range c.instances {
		if m.id == id {
			return m
		}
	}
	return nil
}

// scale starts what groups lack.
func (c *cloud) scale() {
	for name, g := range c.groups {
		n := 0
		for _, m := range c.instances {
			if m.group == name && (m.lifecycle == "Pending" || m.lifecycle == "InService") {
				n++
			}
		}
		for ; n < g.desired; n++ {
			c.started++
			c.instances = append(c.instances, &machine{
				id: fmt.Sprintf("i-%017x", c.started), group: name,
				zone:      "eu-central-1" + string(rune('a'+c.started%3)),
				lifecycle: "Pending", state: "pending", version: c.latest, configuration: g.configured, steps: steps,
			})
		}
	}
}

// pass lets the time of one request pass.
func (c *cloud) pass() {
	for _, m := range c.instances {
		if m.steps == 0 {
			continue
		}
		if m.steps--; m.steps > 0 {
			continue
		}
		switch {
		case m.lifecycle == "Pending":
			m.lifecycle, m.state = "InService", "running"
		case m.lifecycle == "Detaching":
			m.lifecycle, m.group = "", ""
		case m.state == "shutting-down": // and it is shown for some time
			m.state, m.lifecycle, m.group = "terminated", "", ""
		}
	}
	c.scale()
}

func (c *cloud) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := r.ParseForm(); err != nil || !strings.HasPrefix(r.Header.Get("Authorization"), "AWS4-HMAC-SHA256 ") {
		http.Error(w, "not a signed query", http.StatusForbidden)
		return
	}
	action, isEC2 := r.Form.Get("Action"), r.Form.Get("Version") == "2016-11-15"
	c.seen = append(c.seen, action)
	c.pass()
	refused, ok := c.refuse[action]
	delete(c.refuse, action)
	switch {
	case ok:
	case c.throttled && isEC2:
		refused, ok = refusal{503, "RequestLimitExceeded", "Request limit exceeded.", ""}, true
	case c.throttled:
		refused, ok = refusal{400, "Throttling", "Rate exceeded", "2"}, true
	}
	var answer any
	if !ok {
		var failed *refusal
		answer, failed = c.do(action, r.Form)
		if failed != nil {
			refused, ok = *failed, true
		}
	}
	if c.lose && !ok && !strings.HasPrefix(action, "Describe") {
		c.lose = false
		panic(http.ErrAbortHandler) // closes the connection
	}
	w.Header().Set("Content-Type", "text/xml")
	if ok {
		if refused.retryAfter != "" {
			w.Header().Set("Retry-After", refused.retryAfter)
		}
		w.WriteHeader(refused.status)
		format := "<ErrorResponse><Error><Type>Sender</Type><Code>%s</Code><Message>%s</Message></Error>" +
			"<RequestId>r</RequestId></ErrorResponse>"
		if isEC2 {
			format = "<Response><Errors><Error><Code>%s</Code><Message>%s</Message></Error></Errors>" +
				"<RequestID>r</RequestID></Response>"
		}
		fmt.Fprintf(w, format, refused.code, refused.text)
		return
	}
	if isEC2 {
		fmt.Fprint(w, element(action+"Response", answer))
	} else {
		fmt.Fprintf(w, "<%[1]sResponse>%[2]s<ResponseMetadata><RequestId>r</RequestId></ResponseMetadata>"+
			"</%[1]sResponse>",
			action, element(action+"Result", answer))
	}
}

func element(name string, content any) string {
	var text strings.Builder
	if err := xml.NewEncoder(&text).EncodeElement(content, xml.StartElement{Name: xml.Name{Local: name}}); err != nil {
		panic(err)
	}
	return text.String()
}

func values(form url.Values, prefix string) []string {
	var list []string
	for i := 1; form.Has(prefix + strconv.Itoa(i)); i++ {
		list = append(list, form.Get(prefix+strconv.Itoa(i)))
	}
	return list
}

func invalid(format string, args ...any) *refusal {
	return &refusal{http.StatusBadRequest, "ValidationError", fmt.Sprintf(format, args...), ""}
}

func (c *cloud) do(action string, form url.Values) (any, *refusal) {
	switch action {
	case "DescribeAutoScalingGroups":
		return c.describeGroups(form), nil
	case "DescribeAutoScalingInstances":
		return c.describeMembers(form), nil
	case "DescribeInstances":
		return c.describeInstances(form), nil
	case "DescribeLaunchTemplates":
		return struct {
			ID      string `xml:"launchTemplates>item>launchTemplateId"`
			Default int    `xml:"launchTemplates>item>defaultVersionNumber"`
			Latest  int    `xml:"launchTemplates>item>latestVersionNumber"`
		}{"lt-1", 5, c.latest}, nil
	case "DetachInstances", "AttachInstances":
		return struct{}{}, c.move(action, form)
	case "CreateTags", "DeleteTags":
		m := c.find(form.Get("ResourceId.1"))
		if m == nil {
			return nil, &refusal{http.StatusBadRequest, "InvalidInstanceID.NotFound", "there is no such instance", ""}
		}
		if action == "CreateTags" {
			m.tag = form.Get("Tag.1.Key") + "=" + form.Get("Tag.1.Value")
		} else if strings.HasPrefix(m.tag, form.Get("Tag.1.Key")+"=") && !form.Has("Tag.1.Value") {
			m.tag = ""
		}
		return struct{}{}, nil
	case "TerminateInstances":
		m := c.find(form.Get("InstanceId.1"))
		if m == nil {
			return nil, &refusal{
				http.StatusBadRequest, "InvalidInstanceID.NotFound",
				"The instance ID '" + form.Get("InstanceId.1") + "' does not exist", "",
			}
		}
		if m.state != "terminated" && m.state != "shutting-down" {
			m.state, m.steps = "shutting-down", steps
			if m.group != "" {
				m.lifecycle = "Terminating"
				c.scale()
			}
		}
		return struct{}{}, nil
	}
	return nil, &refusal{http.StatusBadRequest, "InvalidAction", action, ""}
}

func (c *cloud) move(action string, form url.Values) *refusal {
	name, id := form.Get("AutoScalingGroupName"), form.Get("InstanceIds.member.1")
	g, m := c.groups[name], c.find(id)
	if g == nil {
		return invalid("AutoScalingGroup name not found - AutoScalingGroup '%s' not found", name)
	}
	if action == "DetachInstances" {
		switch {
		case m == nil || m.group != name:
			return invalid("The instance %s is not part of Auto Scaling group %s.", id, name)
		case m.lifecycle != "InService":
			return invalid("The instance %s is not in InService or Standby.", id)
		case form.Get("ShouldDecrementDesiredCapacity") == "true" && g.desired <= g.min:
			return invalid("Detaching would put the group below its minimum size of %d", g.min)
		}
		if form.Get("ShouldDecrementDesiredCapacity") == "true" {
			g.desired--
		}
		m.lifecycle, m.steps = "Detaching", steps
		c.scale()
		return nil
	}
	switch {
	case m == nil || m.state == "terminated":
		return invalid("Invalid Instance ID(s) [%s] specified", id)
	case m.state != "running":
		return invalid("Instance %s is not in correct state.", id)
	case m.group != "":
		return invalid("Instance %s is already part of AutoScalingGroup: %s", id, m.group)
	case g.desired >= g.max:
		return invalid("AutoScalingGroup %s has max-size=%d, and cannot be increased", name, g.max)
	}
	m.group, m.lifecycle, m.version, m.configuration = name, "InService", 0, ""
	g.desired++
	return nil
}

// page returns the element that a token stands for, after a first, empty page.
func page[T any](list []T, form url.Values) ([]T, string) {
	n, _ := strconv.Atoi(form.Get("NextToken"))
	next := ""
	if n < len(list) {
		next = strconv.Itoa(n + 1)
	}
	if n == 0 || n > len(list) {
		return nil, next
	}
	return list[n-1 : n], next
}

type xmlTemplate struct {
	ID      string `xml:"LaunchTemplateId"`
	Version string `xml:"Version,omitempty"`
}

type xmlMember struct {
	ID            string       `xml:"InstanceId"`
	Group         string       `xml:"AutoScalingGroupName,omitempty"`
	Zone          string       `xml:"AvailabilityZone"`
	State         string       `xml:"LifecycleState"`
	Type          string       `xml:"InstanceType"`
	Weight        string       `xml:"WeightedCapacity,omitempty"`
	Configuration string       `xml:"LaunchConfigurationName,omitempty"`
	Template      *xmlTemplate `xml:"LaunchTemplate"`
}

func member(m *machine) xmlMember {
	x := xmlMember{
		ID: m.id, Group: m.group, Zone: m.zone, State: m.lifecycle, Type: "m7g.large", Configuration: m.configuration,
	}
	if m.configuration == "" && m.version > 0 {
		x.Template = &xmlTemplate{"lt-1", strconv.Itoa(m.version)}
	}
	return x
}

type xmlGroup struct {
	Name          string       `xml:"AutoScalingGroupName"`
	Desired       int          `xml:"DesiredCapacity"`
	Min           int          `xml:"MinSize"`
	Max           int          `xml:"MaxSize"`
	Unit          string       `xml:"DesiredCapacityType,omitempty"`
	Configuration string       `xml:"LaunchConfigurationName,omitempty"`
	Template      *xmlTemplate `xml:"LaunchTemplate"`
	Mixed         *xmlTemplate `xml:"MixedInstancesPolicy>LaunchTemplate>LaunchTemplateSpecification"`
	Instances     []xmlMember  `xml:"Instances>member"`
}

func (c *cloud) describeGroups(form url.Values) any {
	var groups []xmlGroup
	for _, name := range values(form, "AutoScalingGroupNames.member.") {
		g := c.groups[name]
		if g == nil {
			continue
		}
		x := xmlGroup{Name: name, Desired: g.desired, Min: g.min, Max: g.max, Unit: g.unit, Configuration: g.configured}
		switch {
		case g.mixed:
			x.Mixed = &xmlTemplate{"lt-1", g.version}
		case g.configured == "":
			x.Template = &xmlTemplate{"lt-1", g.version}
		}
		for _, m := range c.instances {
			if m.group == name {
				i := member(m)
				i.Weight = g.weight
				x.Instances = append(x.Instances, i)
			}
		}
		groups = append(groups, x)
	}
	list, next := page(groups, form)
	return struct {
		Groups []xmlGroup `xml:"AutoScalingGroups>member"`
		Next   string     `xml:"NextToken,omitempty"`
	}{list, next}
}

func (c *cloud) describeMembers(form url.Values) any {
	var members []xmlMember
	for _, id := range values(form, "InstanceIds.member.") {
		if m := c.find(id); m != nil && m.group != "" {
			members = append(members, member(m))
		}
	}
	list, next := page(members, form)
	return struct {
		Members []xmlMember `xml:"AutoScalingInstances>member"`
		Next    string      `xml:"NextToken,omitempty"`
	}{list, next}
}

type xmlInstance struct {
	ID    string `xml:"instancesSet>item>instanceId"`
	State string `xml:"instancesSet>item>instanceState>name"`
	Zone  string `xml:"instancesSet>item>placement>availabilityZone"`
}

func (c *cloud) describeInstances(form url.Values) any {
	var found []xmlInstance
	asked := values(form, "Filter.1.Value.")
	for _, m := range c.instances {
		if form.Get("Filter.1.Name") == "instance-id" && slices.Contains(asked, m.id) {
			found = append(found, xmlInstance{m.id, m.state, m.zone})
		}
	}
	list, next := page(found, form)
	return struct {
		Found []xmlInstance `xml:"reservationSet>item"`
		Next  string        `xml:"nextToken,omitempty"`
	}{list, next}
}
