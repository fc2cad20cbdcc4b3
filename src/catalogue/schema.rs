//! The JSON Schemas of an event type, made from its table.

use serde_json::{Map, Value, json};

use super::event_type::{EventType, From, How, Kind};

impl EventType {
    /// What arguments it takes.
    pub fn input_schema(&self) -> Value {
        let properties: Map<_, _> = self
            .filters
            .iter()
            .map(|filter| {
                let schema = match filter.how {
                    How::Number => json!({"type": "integer", "minimum": 1, "description": filter.about}),
                    _ => json!({"type": "string", "minLength": 1, "maxLength": super::arguments::LONGEST,
                                "description": filter.about}),
                };
                (filter.name.to_owned(), schema)
            })
            .collect();
        json!({"type": "object", "properties": properties, "additionalProperties": false})
    }

    /// What its payload holds.
    pub fn payload_schema(&self) -> Value {
        let mut properties = Map::new();
        for field in self.all_fields() {
            let schema = match field.kind {
                Kind::Text => json!({"type": "string", "description": field.about}),
                Kind::Number => json!({"type": "integer", "description": field.about}),
                Kind::Flag => json!({"type": "boolean", "description": field.about}),
                Kind::Texts => json!({"type": "array", "items": {"type": "string"}, "description": field.about}),
                Kind::Numbers => json!({"type": "array", "items": {"type": "integer"}, "description": field.about}),
            };
            properties.insert(field.name.to_owned(), schema);
            if matches!(field.from, From::Excerpt(_)) {
                let about = format!("Whether {} was cut; the get_event tool reads all of it", field.name);
                properties
                    .insert(format!("{}_truncated", field.name), json!({"type": "boolean", "description": about}));
            }
        }
        json!({"type": "object", "properties": properties})
    }
}
