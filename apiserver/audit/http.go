package audit

import (
	"bufio"
	"net"
	"net/http"
)

// Header is the header of an answer that says by which ID the audit knows the request.
const Header = "Audit-ID"

// Answer is the client's end of an answer, whose beginning and end are recorded. It is an http.ResponseWriter.
type Answer struct {
	http.ResponseWriter
	record *Record
	code   int
}

// HTTP begins the record of a request over HTTP. What it returns is to be used in place of w and r; End ends it.
func (l *Log) HTTP(w http.ResponseWriter, r *http.Request) (*Answer, *http.Request) {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = "" // a client in the process has no address
	}
	ctx, record := l.Begin(r.Context(), Source{URI: r.URL.RequestURI(), Address: host, UserAgent: r.UserAgent()},
		AttributesOf(r.Method, r.URL))
	w.Header()[Header] = []string{record.ID()}
	return &Answer{ResponseWriter: w, record: record}, r.WithContext(ctx)
}

// End writes the last event of the request.
func (a *Answer) End() {
	if a.code == 0 {
		a.code = http.StatusOK
	}
	a.record.Complete(a.code)
}

// WriteHeader implements http.ResponseWriter.
func (a *Answer) WriteHeader(code int) {
	a.begin(code)
	a.ResponseWriter.WriteHeader(code)
}

// Write implements http.ResponseWriter.
func (a *Answer) Write(b []byte) (int, error) {
	a.begin(http.StatusOK)
	return a.ResponseWriter.Write(b)
}

// begin notes the code that the client is told, which is the first that is not only informational.
func (a *Answer) begin(code int) {
	if a.code != 0 || code < http.StatusOK && code != http.StatusSwitchingProtocols {
		return
	}
	a.code = code
	a.record.start(code, true)
}

// Flush implements http.Flusher.
func (a *Answer) Flush() {
	a.begin(http.StatusOK)
	_ = http.NewResponseController(a.ResponseWriter).Flush() // a client that is gone is found out by the next write
}

// Hijack implements http.Hijacker, for connections that are upgraded.
func (a *Answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := http.NewResponseController(a.ResponseWriter).Hijack()
	if err == nil {
		a.begin(http.StatusSwitchingProtocols)
	}
	return conn, rw, err
}

// Unwrap is for http.ResponseController.
func (a *Answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
