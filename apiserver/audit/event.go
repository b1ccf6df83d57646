package audit

import (
	"bytes"
	"encoding/json"
	"time"

	"monoplane.dev/apiserver/authn"

	metav1 "monoplane.dev/api/meta/v1"
)

// timeFormat is that of Kubernetes' MicroTime.
const timeFormat = "2006-01-02T15:04:05.000000Z07:00"

// event is a line of the log, an Event of audit.k8s.io/v1.
type event struct {
	Kind             string            `json:"kind"`
	APIVersion       string            `json:"apiVersion"`
	Level            Level             `json:"level"`
	AuditID          string            `json:"auditID"`
	Stage            Stage             `json:"stage"`
	RequestURI       string            `json:"requestURI"`
	Verb             string            `json:"verb"`
	User             userInfo          `json:"user"`
	ImpersonatedUser *userInfo         `json:"impersonatedUser,omitempty"`
	SourceIPs        []string          `json:"sourceIPs,omitempty"`
	UserAgent        string            `json:"userAgent,omitempty"`
	ObjectRef        *objectRef        `json:"objectRef,omitempty"`
	ResponseStatus   json.RawMessage   `json:"responseStatus,omitempty"`
	RequestObject    json.RawMessage   `json:"requestObject,omitempty"`
	ResponseObject   json.RawMessage   `json:"responseObject,omitempty"`
	RequestReceived  string            `json:"requestReceivedTimestamp"`
	StageTime        string            `json:"stageTimestamp"`
	Annotations      map[string]string `json:"annotations,omitempty"`
}

type userInfo struct {
	Username string              `json:"username,omitempty"`
	UID      string              `json:"uid,omitempty"`
	Groups   []string            `json:"groups,omitempty"`
	Extra    map[string][]string `json:"extra,omitempty"`
}

type objectRef struct {
	Resource        string `json:"resource,omitempty"`
	Namespace       string `json:"namespace,omitempty"`
	Name            string `json:"name,omitempty"`
	UID             string `json:"uid,omitempty"`
	APIGroup        string `json:"apiGroup,omitempty"`
	APIVersion      string `json:"apiVersion,omitempty"`
	ResourceVersion string `json:"resourceVersion,omitempty"`
	Subresource     string `json:"subresource,omitempty"`
}

func newEvent(id string) event { return event{Kind: "Event", APIVersion: apiVersion, AuditID: id} }

// line encodes an event. The bytes of an object that has no JSON would be a mistake of the codec, and are left out.
func (e *event) line() []byte {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if encoder.Encode(e) != nil {
		b.Reset()
		plain := *e
		plain.RequestObject, plain.ResponseObject, plain.ResponseStatus = nil, nil, nil
		_ = encoder.Encode(&plain) // the rest are texts
	}
	return b.Bytes()
}

func describe(u *authn.User) userInfo {
	if u == nil {
		return userInfo{}
	}
	return userInfo{Username: u.Name, UID: u.UID, Groups: u.Groups, Extra: u.Extra}
}

// status is the metav1.Status of an answer that went well.
func success(code int) json.RawMessage {
	return (&metav1.Status{Metadata: &metav1.ListMeta{}, Code: int32(code)}).AppendJSON(nil)
}

func timestamp(t time.Time) string { return t.UTC().Format(timeFormat) }
