package main

import (
	"fmt"

	optionsv1 "monoplane.dev/api/options/v1"
)

// scalar writes the codec of a message whose JSON form is not an object.
func (c *codec) scalar(s optionsv1.Scalar) error {
	var name, get, set string
	switch s {
	case optionsv1.Scalar_TIME:
		name, get, set = "Time", "x.GetSeconds(), x.GetNanos()", "&x.Seconds, &x.Nanos"
	case optionsv1.Scalar_MICRO_TIME:
		name, get, set = "MicroTime", "x.GetSeconds(), x.GetNanos()", "&x.Seconds, &x.Nanos"
	case optionsv1.Scalar_DURATION:
		name, get, set = "Duration", "x.GetDuration()", "&x.Duration"
	case optionsv1.Scalar_QUANTITY:
		name, get, set = "Quantity", "x.GetString_()", "&x.String_"
	case optionsv1.Scalar_INT_OR_STRING:
		name, get, set = "IntOrString", "x.GetType(), x.GetIntVal(), x.GetStrVal()", "&x.Type, &x.IntVal, &x.StrVal"
	case optionsv1.Scalar_FIELDS_V1, optionsv1.Scalar_RAW_EXTENSION:
		name, get, set = "Raw", "x.GetRaw()", "&x.Raw"
	default:
		return fmt.Errorf("%s: unknown scalar %v", c.m.Desc.FullName(), s)
	}
	g := c.g
	g.P("// AppendJSON appends the JSON form of x to b.")
	g.P("func (x *", c.m.GoIdent, ") AppendJSON(b []byte) []byte {")
	g.P("return ", c.runtime("Append"+name), "(b, ", get, ")")
	g.P("}")
	g.P()
	g.P("// DecodeJSON reads the JSON form of x from d.")
	g.P("func (x *", c.m.GoIdent, ") DecodeJSON(d *", c.runtime("Decoder"), ") {")
	g.P("d.", name, "(", set, ")")
	g.P("}")
	g.P()
	return nil
}
