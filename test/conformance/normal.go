package conformance

import (
	"regexp"
	"strings"
)

// What is different in each run: a pattern, and the word that stands for all it matches. The order counts.
var different = []struct {
	pattern *regexp.Regexp
	word    string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "UID"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)`), "TIME"},
	{regexp.MustCompile(`[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d [+-]\d{4}`), "TIME"},
	// What client-go reports of a watch that --timeout has ended depends on how long the watch lasted.
	{regexp.MustCompile(`(?m)^I\d{4} .* reflector\.go:\d+\] .*very short watch.*\n`), ""},
	// What it reports of a watch that whoever began it has ended depends on what the watch was doing.
	{regexp.MustCompile(`(?m)^[WE]\d{4} .* (request|reflector)\.go:\d+\] .*context canceled.*\n`), ""},
	{regexp.MustCompile(`[IWEF]\d{4} \d\d:\d\d:\d\d\.\d+ +\d+ `), "LOG "},
	{regexp.MustCompile(`\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d+)? [+-]\d{4}( UTC)?`), "TIME"},
	{regexp.MustCompile(`(resourceVersion"?: *"?|Resource Version: +)\d+`), "${1}RV"},
	{regexp.MustCompile(`(Too large resource version: \d+, current: )\d+`), "${1}RV"},
	{regexp.MustCompile(`(ResourceVersion in (?:object meta: |record \())\d+`), "${1}RV"},
	{regexp.MustCompile(`/tmp/(LIVE|MERGED|kubectl-edit)-\d+`), "/tmp/${1}-RANDOM"},
	{regexp.MustCompile(`(monoplane.dev/machine-key"?[=:] ?"?)[A-Z0-9]+`), "${1}KEY"},
	{regexp.MustCompile(`https://(127\.0\.0\.1|localhost):\d+`), "https://SERVER"},
	{regexp.MustCompile(`\b\d{1,3}\.\d{1,3}\.\d{1,3}\.\d{1,3}\b`), "IP"},
	{regexp.MustCompile(`:3\d{4}/`), ":PORT/"},
	{regexp.MustCompile(`\bfake://[a-z0-9]{2,}`), "fake://ID"},
	{regexp.MustCompile(`\bnode-\d\b`), "node-N"},
	{regexp.MustCompile(`kube-api-access-[a-z0-9]{5}`), "kube-api-access-RANDOM"},
	// What is made of a name and a hash, or of a name and random letters, has only letters and digits of this alphabet.
	{regexp.MustCompile(`-[bcdfghjklmnpqrstvwxz2456789]{5,10}\b`), "-RANDOM"},
	{regexp.MustCompile(`((?:template|revision)-hash"?[=:] ?"?)[a-z0-9]+`), "${1}RANDOM"},
	{regexp.MustCompile(`eyJ[\w-]+\.[\w-]+\.[\w-]+`), "TOKEN"},
	{regexp.MustCompile(`LS0tLS1CRUdJTi[A-Za-z0-9+/=]+`), "CERTIFICATE"},
	// An age stands alone in its column, or is followed by what it says.
	{regexp.MustCompile(`(?m)(^|  +)(\d+(?:s|m|h|d|ms)){1,2}($|  +| ago| \(x\d+ over (\d+[smhd])+\))`), "${1}AGE${3}"},
	{regexp.MustCompile(`\(x\d+ over (\d+[smhd])+\)`), ""},
	{regexp.MustCompile(`(?m)(^|  +)<(unknown|invalid)>($|  +)`), "${1}AGE${3}"},
	// What simulated nodes use depends on where pods are.
	{regexp.MustCompile(`(?m)^(node-N +AGE +\d+% +)\d+Mi`), "${1}0Mi"},
}

// toldVersion replaces the version of the nodes' agents, in an output that is not normal yet, where nodes tell it:
// after its name, and as the last or an inner cell of a table. It may be a word that outputs have elsewhere, such as
// "dev".
func toldVersion(output, version, by string) string {
	told := regexp.MustCompile(`(?m)("?kubeletVersion"?: *"?|Kubelet Version: +|  )` + regexp.QuoteMeta(version) +
		`("?,? *$|  )`)
	return told.ReplaceAllString(output, "${1}"+by+"${2}")
}

var gap = regexp.MustCompile(`(\S) {2,}`)

// Normal is an output in which everything random, and everything that tells of time and machine, becomes a word,
// and columns are two spaces apart: how wide they are depends on what was replaced. No line ends with a space.
func Normal(output string) string {
	for _, d := range different {
		// Twice, since what separates two columns belongs to one match only.
		output = d.pattern.ReplaceAllString(d.pattern.ReplaceAllString(output, d.word), d.word)
	}
	var lines []string
	for line := range strings.Lines(output) {
		if kept.MatchString(line) {
			continue
		}
		line = gap.ReplaceAllString(strings.TrimRight(line, " \t\r\n"), "$1  ")
		lines = append(lines, underline.ReplaceAllString(line, "---"))
	}
	if len(lines) == 0 {
		return ""
	}
	return strings.Join(lines, "\n") + "\n"
}

// underline is what kubectl describe draws below the heads of its tables, as wide as the column.
var underline = regexp.MustCompile(`-{4,}`)

// kept is the warning that something is stored and has no effect yet. Kubernetes has no such warnings, and needs what
// is not part of it as well to do what these kinds say (see docs/services.md).
var kept = regexp.MustCompile(
	`^(LOG warnings\.go:\d+\] ")?Warning: .*` +
		`(carried only where|nothing in this version|no effect in this version|nothing serves Ingresses|does not run here|` +
		`not enforced)`)
